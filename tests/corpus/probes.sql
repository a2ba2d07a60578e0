-- One expression per line: <from> | <expression>, asked as SELECT <expression> AS x FROM <from>; "-" is a table of one row.
- | -7 / 2
- | -7 % 3
- | 7 / 2.0
- | 1::numeric / 3
- | 10::numeric / 4
- | 1e10::numeric / 3
- | 0.0001 / 3
- | 2147483647 + 1
- | 1 / 0
- | 1.0 / 0
- | 1::float8 / 0
- | round(2.5)
- | round(-2.5)
- | round(2.5::float8)
- | round(3.5::float8)
- | 2.5::int
- | 2.5::float8::int
- | 3.5::float8::int
- | '1.5'::numeric(3,0)
- | 123.456::numeric(5,1)
- | trunc(-1.5)
- | 0.1::float8 + 0.2::float8
- | (0.1::float8 + 0.2::float8)::text
- | 1e20::float8::text
- | 1::float8::text
- | 100000000::float8::text
- | 1.10::text
- | 1.50 * 2.00
- | (1.50 * 2.00)::text
- | true::text
- | 't'::boolean
- | ' 12 '::int
- | 'abc'::int
- | 0.1::real
- | 0.1::real::float8
- | 'NaN'::float8 = 'NaN'::float8
- | 'NaN'::float8 > 1e308
- | '-0'::float8 = '0'::float8
- | 'Infinity'::float8 - 'Infinity'::float8
- | sqrt(-1::float8)
- | ln(0::float8)
- | power(2, 0.5)
- | power(2::numeric, 10)
- | exp(1::numeric)
- | sqrt(2::numeric)
- | 9223372036854775807 + 1
- | abs(-2147483648)
- | 5 & 3
- | 5 # 3
- | 1 << 40
- | 2 ^ 3
- | factorial(20)
- | gcd(12, 18)
- | width_bucket(5.35, 0.024, 10.06, 5)
- | 'a' || NULL
- | concat('a', NULL, 'b')
- | concat_ws(',', 'a', NULL, 'b')
- | length('')
- | length('é')
- | octet_length('é')
- | substring('hello', 0, 3)
- | substring('hello', -2, 5)
- | substring('hello', 2)
- | substring('hello' from 'l+')
- | left('hello', -2)
- | right('hello', -2)
- | left('hello', 0)
- | lpad('hello', 3)
- | lpad('x', 3)
- | rpad('x', 5, 'ab')
- | split_part('a,b,c', ',', 2)
- | split_part('a,b,c', ',', 9)
- | split_part('a,b,c', ',', -1)
- | position('' in 'abc')
- | strpos('abc', 'd')
- | initcap('hello wORLD-foo_bar')
- | trim('  x  ')
- | trim(E'\t x ')
- | trim(leading 'x' from 'xxabc')
- | upper('straße')
- | lower('İ')
- | replace('aaa', 'a', '')
- | replace('abc', '', 'x')
- | repeat('ab', -1)
- | reverse('añb')
- | translate('12345', '143', 'ax')
- | ascii('')
- | chr(233)
- | md5('a')
- | to_hex(255)
- | quote_literal('O''R')
- | starts_with('abc', 'ab')
- | string_to_array('a,b,,c', ',')
- | string_to_array('a,b', NULL)
- | array_to_string(ARRAY['a', NULL, 'b'], ',')
- | array_to_string(ARRAY['a', NULL, 'b'], ',', '*')
- | regexp_replace('foobarbaz', 'b(..)', 'X\1Y', 'g')
- | regexp_replace('foobar', 'o', '0')
- | regexp_match('foobar', 'b(.)(.)')
- | regexp_split_to_array('a1b2c', '\d')
- | 'abc' ~ 'B'
- | 'abc' ~* 'B'
- | E'a\nb' ~ 'a.b'
- | E'a\nb' ~ '^b'
- | 'foo bar' ~ '\mbar'
- | 'abc' SIMILAR TO 'a_c'
- | 'a_c' LIKE 'a\_c'
- | 'a%c' LIKE 'a!%c' ESCAPE '!'
- | 'ab' LIKE 'ab '
- | 'ab'::char(5) = 'ab'
- | 'ab'::char(5) || 'x'
- | length('ab'::char(5))
- | 'ab'::char(5) LIKE 'ab'
- | 'ab ' = 'ab'
- | 'abcdef'::varchar(3)
- | 'a' < 'B'
- | 'é' < 'z'
- | '' IS NULL
- | coalesce('', 'x')
- | nullif('', '')
- | greatest(1, NULL, 3)
- | least(NULL, 2)
- | NULL = NULL
- | NULL IS NOT DISTINCT FROM NULL
- | (1, NULL) = (1, 2)
- | (1, NULL) = (2, NULL)
- | 1 IN (2, NULL)
- | date '2024-01-31' + interval '1 month'
- | date '2024-01-31' + 1
- | date '2024-03-01' - date '2024-02-01'
- | timestamp '2024-03-01 12:00' - timestamp '2024-02-01 13:00'
- | timestamp '2024-03-31' - interval '1 month'
- | date '2024-01-01' - interval '1 month 1 day'
- | age(timestamp '2024-03-01', timestamp '2023-01-15')
- | extract(epoch from timestamp '2024-01-01 00:00:01.5')
- | extract(dow from date '2024-01-07')
- | extract(isodow from date '2024-01-07')
- | extract(week from date '2024-12-30')
- | extract(isoyear from date '2024-12-30')
- | extract(doy from date '2024-12-31')
- | extract(century from date '2024-01-01')
- | extract(second from timestamp '2024-01-01 00:00:01.5')
- | extract(milliseconds from timestamp '2024-01-01 00:00:01.5')
- | extract(epoch from interval '1 day 2 hours')
- | date_part('year', date '2024-01-01')
- | date_trunc('week', timestamp '2024-01-07 10:00')
- | date_trunc('quarter', timestamp '2024-05-07 10:00')
- | date_trunc('month', date '2024-05-07')
- | date_bin('15 minutes', timestamp '2024-01-01 10:07', timestamp '2024-01-01')
- | make_date(2024, 2, 29)
- | to_date('2024-02-30', 'YYYY-MM-DD')
- | to_timestamp('05 Dec 2000', 'DD Mon YYYY')
- | to_timestamp(1700000000.5)
- | to_char(timestamp '2024-01-07 15:04:05', 'YYYY-MM-DD HH24:MI:SS')
- | to_char(timestamp '2024-01-07 15:04:05', 'HH:MI AM')
- | to_char(timestamp '2024-01-07 15:04:05', 'Day, DDth Mon YYYY')
- | to_char(timestamp '2024-01-07', 'IW')
- | to_char(1234.5, '9,999.99')
- | to_char(-0.5, 'FM90.00')
- | to_char(5, '000')
- | interval '1 month' = interval '30 days'
- | interval '1 day' + interval '2 hours'
- | interval '1 day' / 2
- | justify_days(interval '35 days')
- | (interval '1 year 2 months 3 days 04:05:06')::text
- | timestamptz '2024-01-01 00:00:00+05' AT TIME ZONE 'Asia/Tokyo'
- | timestamp '2024-07-01 00:00:00' AT TIME ZONE 'Europe/Berlin'
- | '2024-01-01'::date::timestamptz
- | timestamp 'infinity' > timestamp '2024-01-01'
- | '0044-03-15 BC'::date
- | time '10:00' + interval '15 hours'
- | timestamp '2024-01-01 10:00'::time
- | (timestamp '2024-01-01 00:00:00.1234567')::text
- | date '2024-01-01'::text
- | (ARRAY[1,2,3])[2]
- | (ARRAY[1,2,3])[0]
- | (ARRAY[1,2,3])[5]
- | (ARRAY[1,2,3])[2:3]
- | ARRAY[1,2] || 3
- | ARRAY[1,2] || ARRAY[3]
- | array_length(ARRAY[]::int[], 1)
- | cardinality(ARRAY[]::int[])
- | ARRAY[1,NULL] @> ARRAY[1]
- | ARRAY[1,NULL] = ARRAY[1,NULL]
- | ARRAY[1,2] && ARRAY[2,9]
- | array_remove(ARRAY[1,2,1], 1)
- | array_position(ARRAY['a','b'], 'z')
- | 1 = ANY (ARRAY[2, NULL])
- | 1 = ALL (ARRAY[]::int[])
- | ARRAY[1,2] < ARRAY[1,3]
- | ARRAY[1,2]::text
- | '{"a":1,"b":{"c":[1,2]}}'::jsonb -> 'b' -> 'c' -> 1
- | '{"a":1}'::jsonb ->> 'a'
- | '{"a":"x"}'::jsonb -> 'a'
- | '{"a":null}'::jsonb ->> 'a'
- | '{"a":null}'::jsonb -> 'a'
- | '{"a":1,"b":2}'::jsonb @> '{"a":1}'
- | '{"a":1}'::jsonb ? 'a'
- | '{"b":1,"a":2}'::jsonb::text
- | '{"a":1.0}'::jsonb = '{"a":1}'::jsonb
- | '[1,2,3]'::jsonb -> -1
- | '{"a":{"b":7}}'::jsonb #>> '{a,b}'
- | jsonb_build_object('a', 1, 'b', NULL)
- | jsonb_typeof('[1]'::jsonb)
- | to_jsonb(1.50)
- | jsonb_path_query_first('{"a":[1,2]}'::jsonb, '$.a[1]')
- | '{"a":1}'::jsonb || '{"b":2}'::jsonb
- | '{"a":1}'::jsonb - 'a'
- | 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid::text
- | 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'::uuid = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid
- | '192.168.1.5'::inet <<= '192.168.1.0/24'::inet
- | E'\\xdeadbeef'::bytea
- | encode('abc'::bytea, 'base64')
- | int4range(1,5) @> 3
- | (2 BETWEEN SYMMETRIC 3 AND 1)
- | CASE WHEN false THEN 1/0 ELSE 1 END
- | '10'::int + '5'
- | 1 + 1.5::float8
- | 1 + 1.5
- | timestamp '2024-10-27 02:30:00' AT TIME ZONE 'Europe/Berlin'
- | timestamp '2024-03-31 02:30:00' AT TIME ZONE 'Europe/Berlin'
- | timestamptz '2024-10-27 00:30:00+00' AT TIME ZONE 'Europe/Berlin'
- | E'a\n' ~ 'a$'
- | 'a$b' ~ 'a\$b'
- | 'abc' LIKE 'abc\'
- | -5.5 % 2
- | round(1234.5, -2)
- | round(-2.345, 2)
- | trunc(12.99, 1)
- | substr('hello', 2, -1)
- | 200::int2 * 300::int2
- | date '2024-01-01' + 2147483647
- | interval '1 month' * 1.5
- | extract(hour from timestamptz '2024-01-01 05:00+00')
- | concat(true, 'x')
- | 'a' || true
- | concat(1.50, date '2024-01-01')
- | 1 = 1.0
- | 0.1 = 0.1::float8
- | 16777217::real = 16777217
- | 9007199254740993::bigint = 9007199254740993::float8
- | 'a' COLLATE "C" < 'B' COLLATE "C"
- | 'a' < 'B' COLLATE "en-US-x-icu"
- | count(*) FILTER (WHERE false)
- | lower('ÀÉ')
- | 'É' ILIKE 'é'
- | split_part('a,b', '', 1)
- | lpad('abc', -1, 'x')
- | overlay('abc' placing 'Z' from 5)
- | greatest('a', 'B')
- | date '2024-02-29' + interval '1 year'
- | timestamp '2024-01-01' + interval '-1 day 36 hours'
- | '1 day'::interval = '24 hours'::interval
- | bool_and(NULL::bool)
ev | sum(f4)
ev | avg(f4)
ev | sum(val)
ev | avg(val)
ev | sum(amt)
ev | sum(big)
ev | avg(amt)
ev | avg(big)
ev | avg(n2)
ev | sum(qty)
ev | stddev(amt)
ev | variance(n2)
ev | stddev_pop(val)
ev | count(DISTINCT amt)
ev | percentile_cont(0.5) WITHIN GROUP (ORDER BY val)
ev | percentile_disc(0.5) WITHIN GROUP (ORDER BY amt)
ev | mode() WITHIN GROUP (ORDER BY kind)
ev | max(kind)
ev | min(payload::text)
ev | bit_xor(amt)
ev | array_agg(DISTINCT qty ORDER BY qty)
ev | string_agg(DISTINCT kind, ',' ORDER BY kind)
ev | json_agg(amt ORDER BY id)
emp | max(rate)
emp | min(rate)
emp | max(code)
emp | count(DISTINCT rate)
emp | max(m)
emp | sum(bonus)
