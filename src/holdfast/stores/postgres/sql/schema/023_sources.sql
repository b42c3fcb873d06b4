-- Sources and the rows of their shadows; layout.py says how.

CREATE TABLE holdfast.sources (
    tenant    text COLLATE "C" NOT NULL,
    source    text COLLATE "C" NOT NULL,
    stamp     text COLLATE "C" NOT NULL,
    state     bytea   NOT NULL,
    row_count bigint  NOT NULL,
    size      bigint  NOT NULL,
    PRIMARY KEY (tenant, source)
) WITH (fillfactor = 50);

CREATE TABLE holdfast.shadow (
    tenant  text COLLATE "C" NOT NULL,
    source  text COLLATE "C" NOT NULL,
    id      text COLLATE "C" NOT NULL,
    version text COLLATE "C" NOT NULL,
    number  bigint  NOT NULL,
    seen    bigint  NOT NULL,
    gone    boolean NOT NULL,
    at      bigint  NOT NULL,
    size    integer NOT NULL,
    body    bytea   NOT NULL,
    PRIMARY KEY (tenant, source, id)
);
