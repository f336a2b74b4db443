"""Typical SQL expressions from pipelines, and rows to evaluate them on.

With these, the test driver's SQL is compared with Spark's.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

SCHEMA = (
    "i int, j int, b bigint, t tinyint, f float, d double, e double, m decimal(10,2), s string,"
    " w string, y boolean, ts timestamp, dt date, bin binary, arr array<int>, words array<string>,"
    " tags map<string,int>, who struct<name:string,age:int>, items array<struct<sku:string,n:int>>"
)
ROWS: list[tuple[Any, ...]] = [
    (
        7, 2, 5_000_000_000, 3, 1.5, 2.5, 100.0, Decimal("12.34"), "Hello World", "  padded ", True,
        datetime(2026, 1, 31, 12, 34, 56, 789000, tzinfo=UTC), date(2026, 2, 28), b"\x00abc", [3, 1, 2],
        ["b", "a", "b"], {"x": 1, "y": 2}, {"name": "Ann", "age": 30},
        [{"sku": "p", "n": 2}, {"sku": "q", "n": 5}],
    ),
    (
        -7, 3, -1, -5, 0.1, -0.5, 1e10, Decimal("-0.05"), "äöü-42-x", "a,b,,c", False,
        datetime(1969, 12, 31, 23, 59, 59, 500000, tzinfo=UTC), date(2024, 2, 29), b"", [],
        [], {}, {"name": None, "age": None}, [],
    ),
    (
        0, 1, 0, 0, 0.0, 0.0, 1.5e-5, Decimal("0.00"), "", "x", None,
        datetime(2026, 3, 29, 1, 30, tzinfo=UTC), date(1999, 12, 31), b"\x7f", [5, None, 4],
        ["z", None], {"k": None}, {"name": "Bob", "age": 5}, [{"sku": None, "n": None}],
    ),
    (None, 1, None, None, None, None, 0.001, *[None] * 12),
]  # fmt: skip

EXPRESSIONS = """
i + 1
i + b
i - j * 2
i * 1.5
i / j
b / 3
i % j
-i % 3
i div j
pmod(i, 3)
d + f
f * 2
f + i
d * m
m + 1
m * 2
m * m
m / 3
m - 0.005
m % 5
t + 1
t + t
-d
i + '5'
d > '1.5'
i = 7.0
i = '7'
m > 12
m = 12.34
d = 2.5 AND y
y OR i > 0
NOT y
NOT i > 3 AND y
i <=> NULL
i IS NULL OR i IS NOT NULL
y IS TRUE
i BETWEEN -7 AND 0
i NOT BETWEEN 1 AND 10
i IN (7, 0)
i IN (7, NULL)
s IN ('', 'Hello World')
s NOT IN ('x')
i & 3
i | 8
i ^ 1
CASE WHEN i > 0 THEN 'plus' WHEN i < 0 THEN 'minus' ELSE 'zero' END
CASE i WHEN 7 THEN 1 WHEN 0 THEN 2.5 END
if(j = 0, NULL, i / j)
if(i > 0, i, b)
coalesce(i, 0)
coalesce(m, 0)
nvl(s, 'none')
nvl2(i, 'there', 'gone')
nullif(i, 0)
greatest(i, j, 3)
least(d, e)
isnull(s)
isnotnull(s)
abs(i)
abs(d)
abs(m)
ceil(d)
floor(d)
ceil(m)
floor(m)
round(d)
round(d, 1)
round(m, 1)
round(m)
round(i, -1)
bround(d)
round(2.5)
round(e, 6)
sqrt(abs(d))
pow(i, 2)
exp(d)
ln(e)
log10(e)
log(2, 8)
log(2, i)
sign(d)
signum(i)
cast(i AS string)
cast(d AS string)
cast(e AS string)
cast(f AS string)
cast(m AS string)
cast(y AS string)
cast(ts AS string)
cast(dt AS string)
cast(arr AS string)
cast(who AS string)
cast(tags AS string)
cast(d AS int)
cast(m AS int)
cast(e AS bigint)
cast(i AS boolean)
cast(y AS int)
cast(i AS decimal(5,1))
cast(d AS decimal(10,3))
cast(m AS decimal(10,1))
cast(m AS double)
cast(b AS double)
cast(ts AS date)
cast(dt AS timestamp)
cast(ts AS bigint)
cast(ts AS double)
cast(i AS timestamp)
cast(s AS binary)
cast(bin AS string)
cast(f AS double)
cast(' 42 ' AS int)
cast('1.5' AS double)
cast('true' AS boolean)
cast('2026-01-31' AS date)
cast('2026-01-31T10:00:00+02:00' AS timestamp)
cast('2026-01-31 10:00:00.5' AS timestamp)
cast('12.345' AS decimal(5,2))
try_cast(s AS int)
try_cast('x' AS double)
i::string
double(i)
string(i)
try_divide(i, 0)
try_add(i, 1)
upper(s)
lower(s)
initcap(s)
length(s)
length(bin)
trim(w)
ltrim(w)
rtrim(w)
trim(BOTH 'x' FROM w)
substring(s, 1, 3)
substring(s, -3)
substring(s, 0, 2)
substr(s, 2)
left(s, 2)
right(s, 3)
concat(s, '-', i)
s || '!'
concat_ws('/', s, w, words)
replace(s, 'l', 'L')
translate(s, 'lo', '01')
repeat(w, 2)
reverse(s)
reverse(arr)
lpad(s, 4, '*')
rpad(w, 12, 'xy')
instr(s, 'o')
locate('o', s)
locate('o', s, 6)
split(w, ',')
split(w, ',', 2)
split_part(w, ',', 2)
substring_index(w, ',', 2)
substring_index(w, ',', -1)
s LIKE 'Hello%'
s LIKE '%_42_%'
s NOT LIKE 'H%'
s ILIKE 'hello%'
s RLIKE '^H.*d$'
s RLIKE '[0-9]+'
regexp_extract(s, '([a-zA-Z]+) ([a-zA-Z]+)', 2)
regexp_extract(s, '([0-9]+)', 1)
regexp_replace(s, '([a-z])([0-9])', '$2$1')
regexp_replace(s, '[^a-zA-Z]', '')
startswith(s, 'He')
endswith(s, 'x')
contains(s, 'o W')
ascii(s)
md5(s)
sha2(s, 256)
crc32(s)
base64(bin)
hex(b)
hex(s)
format_string('%s is %d and %.2f', s, i, d)
format_number(e, 2)
levenshtein(s, 'Hello')
chr(65)
year(ts)
month(dt)
day(ts)
hour(ts)
minute(ts)
second(ts)
quarter(dt)
dayofweek(dt)
weekday(dt)
dayofyear(dt)
weekofyear(dt)
extract(YEAR FROM ts)
extract(SECOND FROM ts)
date_part('hour', ts)
date_trunc('hour', ts)
date_trunc('DAY', ts)
date_trunc('week', ts)
date_trunc('month', ts)
trunc(dt, 'MM')
date_add(dt, 1)
date_sub(dt, 1)
dt + 1
datediff(dt, date'2026-01-01')
add_months(dt, 1)
last_day(dt)
next_day(dt, 'Mon')
months_between(ts, timestamp'2026-01-01 00:00:00')
ts + INTERVAL 5 MINUTES
ts - INTERVAL '1' DAY
ts + INTERVAL 1 MONTH
dt + INTERVAL 2 DAYS
dt + INTERVAL 2 HOURS
ts + INTERVAL 1 WEEK
INTERVAL 1 HOUR + ts
ts + INTERVAL '90' SECOND
ts - INTERVAL 1 DAY 2 HOURS
dt - date'2026-01-01'
dt - INTERVAL 1 YEAR
ts > timestamp'2026-01-01'
ts > '2026-01-01'
dt = '2026-02-28'
dt < ts
ts - timestamp'2026-01-31 00:00:00'
unix_timestamp(ts)
unix_seconds(ts)
unix_millis(ts)
unix_micros(ts)
timestamp_seconds(i)
timestamp_millis(b)
timestamp_micros(b)
from_unixtime(i)
from_unixtime(1769862896, 'yyyy/MM/dd HH:mm')
to_date('31.01.2026', 'dd.MM.yyyy')
to_timestamp('2026-01-31 10:11:12', 'yyyy-MM-dd HH:mm:ss')
to_timestamp('2026-01-31T10:11:12.123Z')
date_format(ts, 'yyyy-MM-dd HH:mm:ss.SSS')
date_format(ts, 'EEE d MMM yyyy h:mm a')
date_format(dt, 'MMMM')
make_date(2026, 2, 3)
from_utc_timestamp(ts, 'Europe/Berlin')
to_utc_timestamp(ts, 'Europe/Berlin')
timestampdiff(HOUR, ts, timestamp'2026-02-01')
timestampadd(MINUTE, 90, ts)
array(1, 2, 3)
array(i, b)
map('a', 1, 'b', i)
struct(i, s AS name)
named_struct('a', i, 'b', d)
size(arr)
size(tags)
get(arr, 0)
element_at(tags, 'x')
tags['x']
who.name
who['age']
items.sku
get(items, 0).sku
array_contains(arr, 1)
array_distinct(words)
array_join(words, '-')
array_join(words, '-', '?')
array_max(arr)
array_min(arr)
array_position(words, 'a')
sort_array(arr)
sort_array(arr, false)
array_union(arr, array(9))
array_except(arr, array(1))
array_intersect(arr, array(1, 2))
arrays_overlap(arr, array(1))
array_append(arr, 8)
array_compact(arr)
array_repeat(i, 2)
slice(arr, 1, 2)
flatten(array(arr, array(1)))
sequence(1, 4)
transform(arr, x -> x + 1)
transform(arr, (x, n) -> x * n)
filter(arr, x -> x > 1)
exists(arr, x -> x = 2)
forall(arr, x -> x > 0)
aggregate(arr, 0, (a, x) -> a + x)
aggregate(items, 0, (a, one) -> a + one.n, a -> a * 2)
transform(items, one -> concat(one.sku, ':', one.n))
map_keys(tags)
map_values(tags)
map_contains_key(tags, 'x')
map_filter(tags, (k, v) -> v > 1)
transform_values(tags, (k, v) -> v + 1)
map_from_arrays(array('a', 'b'), array(1, 2))
to_json(struct(i, s, d, e, m, y, ts, dt, arr, tags, who))
to_json(who)
to_json(arr)
from_json('{"a": 1, "b": "x"}', 'a int, b string')
from_json('{"a": "x"}', 'a int')
get_json_object('{"a": {"b": [1, 2]}}', '$.a.b[1]')
get_json_object('{"a": {"b": [1, 2]}}', '$.a')
get_json_object('{"a": "t"}', '$.a')
json_array_length('[{"a": 1}, 2, []]')
json_array_length('{"a": 1}')
json_array_length('[{"a": 1} {"b": 2}]')
json_array_length('')
json_array_length(NULL)
1.5
0.92 * 2
100L
1e3
'it''s'
"double"
r'\\d'
X'1F'
current_date() = current_date()
i = 7 OR s = 'x' AND y
((i + 1) * 2)
- - i
i > j = true
i != j
i <= j
d >= e
acos(0.5)
asin(0.5)
atan(d)
atan2(d, e)
cbrt(d)
cos(d)
cosh(d)
sin(d)
sinh(d)
tan(d)
tanh(d)
hypot(d, 3)
degrees(d)
radians(d)
log1p(abs(d))
log2(e)
power(d, 2)
pi()
e()
factorial(5)
bin(b)
bit_count(i)
isnan(d)
nanvl(d, 1.0)
mod(i, j)
positive(i)
~i
ceiling(d)
array_remove(arr, 1)
array_size(arr)
cardinality(arr)
bigint(i)
smallint(i)
tinyint(j)
float(d)
int(d)
boolean(i)
date(ts)
timestamp(dt)
binary(s)
decimal(i)
char(66)
char_length(s)
character_length(s)
len(s)
octet_length(s)
curdate() = current_date()
now() = current_timestamp()
date_diff(dt, date'2026-01-01')
date_from_unix_date(20000)
dateadd(dt, 3)
dateadd(HOUR, 2, ts)
datepart('year', ts)
dayname(dt)
monthname(dt)
dayofmonth(dt)
encode(s, 'utf-8')
decode(encode(s, 'utf-8'), 'utf-8')
find_in_set('b', w)
hash(i)
hash(b, s)
hash(d, f, y)
hash(ts, dt, m, bin)
hash(cast(m AS decimal(20,2)), cast('-12345678901234567.89' AS decimal(20,2)), cast('0' AS decimal(38,0)))
ifnull(i, 5)
is_valid_utf8(s)
lcase(s)
ucase(s)
localtimestamp() IS NOT NULL
make_timestamp(2026, 1, 2, 3, 4, 5.678)
map_entries(tags)
position('o' IN s)
position('o', s)
printf('%d-%s', i, s)
printf('%5d|%05d|%.1f', i, j, d)
reduce(arr, 0, (a, x) -> a + x)
regexp_count(s, 'l')
regexp_extract_all(s, '([a-z])', 1)
regexp_like(s, 'l+')
sha(s)
sha1(s)
space(3)
to_unix_timestamp(ts)
transform_keys(tags, (k, v) -> upper(k))
try_mod(i, 0)
try_multiply(i, 2147483647)
try_subtract(i, 1)
try_parse_json(s) IS NULL
try_to_date('x', 'yyyy-MM-dd')
try_to_timestamp('2026-01-01 00:00:00', 'yyyy-MM-dd HH:mm:ss')
unbase64(base64(bin))
unhex('1F2')
unix_date(dt)
unix_timestamp('2026-01-01 00:00:01')
substring(bin, 2, 2)
substring(s FROM 2 FOR 3)
split('a1b2', '[0-9]')
split('abc', '')
regexp_replace('a.b', '\\\\.', '-')
s LIKE '%\\\\_%'
replace(s, 'Hello')
locate('', s)
lpad('ab', 5)
rpad('ab', 1)
right(s, 0)
initcap("o'NEIL mc-donald")
upper('straße')
translate('abc', 'ab', 'x')
array_join(array(1, 2), ',')
concat(arr, array(9))
concat(bin, bin)
sort_array(words)
greatest(d, NULL)
least('a', 'b')
coalesce(NULL, NULL, i)
if(NULL, 1, 2)
i = NULL
NULL AND false
NULL OR true
cast(NULL AS int)
cast('  true ' AS boolean)
cast('1e3' AS double)
cast(1.999 AS int)
cast(-1.5 AS bigint)
cast(2.5 AS decimal(2,0))
cast(0.1 + 0.2 AS string)
cast(1e21 AS string)
cast(123456789.0D AS string)
cast(0.00012D AS string)
cast(1.0F / 3 AS string)
cast(f AS string)
cast(cast(0.1 AS float) AS double)
cast('2026-02-29' IS NULL AS string)
round(-2.5D)
round(1.005D, 2)
bround(2.5D)
round(123.456, -1)
1.10 + 2.205
10.0 / 3
7 % 2.5
-7 div 2
5 / 2 * 2
1 + 2 * 3 - 4 / 2
2 - 1 - 1
NOT true OR true
i > 0 AND NOT y OR s = ''
date_trunc('quarter', ts)
date_trunc('minute', ts)
date_trunc('second', ts)
trunc(dt, 'year')
trunc(dt, 'week')
add_months(date'2024-02-29', 12)
add_months(date'2026-01-31', 1)
last_day(date'2024-02-01')
timestampdiff(MONTH, timestamp'2026-01-31', timestamp'2026-02-28')
timestampdiff(DAY, ts, timestamp'2026-01-01')
date'2026-01-31' > timestamp'2026-01-30 12:00:00'
extract(MONTH FROM dt)
extract(DOW FROM dt)
extract(WEEK FROM dt)
from_unixtime(0, 'yyyy-MM-dd')
date_format(ts, "yyyy-MM-dd'T'HH:mm:ssXXX")
date_format(ts, 'D')
date_format(ts, 'hh a')
to_timestamp('31/01/2026 9:05 PM', 'dd/MM/yyyy h:mm a')
to_json(named_struct('a', NULL, 'b', array(1, NULL), 'c', map('x', NULL)))
to_json(struct(ts), map('timestampFormat', 'yyyy'))
from_json('[1, 2]', 'array<int>')
from_json('{"x": 1}', 'map<string,int>')
from_json('{"a": [{"b": 1.5}]}', 'a array<struct<b:double>>')
get_json_object('{"a": 1.50}', '$.a')
get_json_object('nope', '$.a')
get_json_object('{"a": 1e5}', '$.a')
get_json_object('{"a": [1.10, {"b": 12345678901234567890}]}', '$.a')
from_json('{"a": 1.50}', 'a string')
from_json('{"a": {"b":  1.50}}', 'a string')
from_json('{"a": true}', 'a string')
timestampdiff(MONTH, timestamp'2026-02-28 12:00:00', timestamp'2026-01-28 11:00:00')
timestampdiff(YEAR, timestamp'2024-02-29', timestamp'2026-02-28')
aggregate(array(1.5D, 2.5D), 0.0D, (a, x) -> a + x)
filter(words, w -> w IS NOT NULL AND w > 'a')
exists(arr, x -> x IS NULL)
element_at(words || array('end'), -1)
map('a', 1)['b']
array(array(1), array(2))[1][0]
named_struct('x', named_struct('y', i)).x.y
transform(items, x -> x.n + i)
"""

# Spark refuses these or fails on them, so the driver must not return a value.
WRONG = """
i / 0
i % 0
cast('ten' AS int)
cast('one day' AS timestamp)
2147483647 + j
cast(b AS int)
arr[10]
element_at(arr, 0)
i + arr
nothing_like_this + 1
no_such_function(i)
upper()
sqrt(arr)
who.nobody
i > > 5
cast(3000000000 AS int)
to_date('x', 'yyyy-MM-dd')
t * 100Y
"""


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]
