-- Copies the edges of version 6 into the new table, without those that cannot be read.

INSERT INTO edges (seq, number, targets)
    SELECT seq, number / 50 * 50, json_group_array(json_array(target, name, on_failure))
    FROM (
        SELECT seq, number, target, name, on_failure FROM edges_6
        WHERE typeof(target) = 'text' AND typeof(name) = 'text' AND typeof(on_failure) = 'text'
        ORDER BY seq, number
    )
    GROUP BY seq, number / 50;
DROP TABLE edges_6;
