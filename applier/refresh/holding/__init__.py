"""Gates, watermark groups and fuses in; how far a stream table may go, or why it stays, out."""
