"""Reads and writes schema `pgtrickle`: stream tables, frontiers, history, checkpoints and settings of the service."""
