-- Paths in JSON, and SQL's own words for JSON.

-- name: json_paths
SELECT id, jsonb_path_query_array(notes, '$.* ? (@ >= 1)') AS q, jsonb_path_query_first(notes, 'strict $.a', '{}', true) AS f, jsonb_path_exists(notes, '$.b ? (@ == $x)', jsonb_build_object('x', id)) AS e, notes @? '$.c' AS o, notes @@ '$.a == 1' AS m
FROM customer WHERE notes @@ 'exists($.a)' OR notes IS NULL;

-- name: json_path_rows
SELECT c.id, q, n FROM customer c LEFT JOIN LATERAL jsonb_path_query(c.notes, '$.*') WITH ORDINALITY AS t(q, n) ON true;

-- name: json_answers
SELECT id, JSON_VALUE(coalesce(notes, 'null'), '$.a' RETURNING int DEFAULT -1 ON EMPTY DEFAULT -2 ON ERROR) AS v, JSON_VALUE(notes, '$.a + $x' PASSING id AS x RETURNING numeric(5,1)) AS p, JSON_QUERY(notes, '$.*' WITH WRAPPER) AS q, JSON_EXISTS(notes, '$.c') AS e, JSON_VALUE(jsonb_build_object('k', name)::text, '$.k') AS k
FROM customer;

-- name: json_answers_or_errors
SELECT id, JSON_VALUE(notes, '$.a' ERROR ON EMPTY ERROR ON ERROR) AS v FROM customer WHERE JSON_EXISTS(notes, '$.a' ERROR ON ERROR);

-- name: json_built
SELECT id, JSON_ARRAY(id, region, born) AS a, JSON_ARRAY(id, region NULL ON NULL RETURNING jsonb) AS b, JSON_OBJECT('id': id, 'region': region ABSENT ON NULL RETURNING jsonb) AS c, JSON_OBJECT('id': id, 'born': born) AS d FROM customer;

-- name: json_tests
SELECT id, notes IS JSON OBJECT AS a, name IS JSON AS b, region IS NOT JSON SCALAR AS c, (notes::text || name) IS JSON OBJECT WITH UNIQUE KEYS AS d FROM customer;

-- name: json_table
SELECT c.id, t.* FROM customer c, JSON_TABLE(jsonb_build_array(c.notes, c.id, c.notes -> 'a'), '$[*]' PASSING c.id AS x
    COLUMNS (n FOR ORDINALITY, a int PATH '$.a' DEFAULT 0 ON EMPTY, v text PATH '$', q jsonb PATH '$', e bool EXISTS PATH '$.b ? (@ == $x)')) t;

-- name: json_table_nested
SELECT c.id, t.* FROM customer c LEFT JOIN JSON_TABLE(jsonb_build_object('z', jsonb_build_array(c.id, c.notes), 'k', c.name), '$'
    COLUMNS (k text, NESTED PATH '$.z[*]' COLUMNS (m FOR ORDINALITY, z jsonb PATH '$', NESTED PATH '$.*' COLUMNS (y int PATH '$')))) t ON c.vip;

-- name: json_table_alone
SELECT t.a, count(*) AS n FROM JSON_TABLE('[{"a": 1}, {"a": 2}, {"a": 1}]', '$[*]' COLUMNS (a int)) t GROUP BY t.a;

-- name: json_table_beside
SELECT c.id, t.* FROM customer c, JSON_TABLE(jsonb_build_object('z', jsonb_build_array(c.id, c.notes), 'k', c.name, 'y', c.notes), '$' PASSING c.id AS x
    COLUMNS (k text, NESTED PATH '$.z[*]' COLUMNS (m FOR ORDINALITY, z jsonb PATH '$'), NESTED PATH '$.y.*' COLUMNS (y int PATH '$', e bool EXISTS PATH '$ ? (@ == $x)'))) t;
