CREATE TABLE meta (
    name TEXT NOT NULL PRIMARY KEY,
    value BLOB NOT NULL
);

CREATE TABLE records (
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    version BIGINT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (kind, id)
);

CREATE TABLE record_keys (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    id TEXT NOT NULL,
    is_unique BIGINT NOT NULL,
    PRIMARY KEY (kind, name, value, id),
    FOREIGN KEY (kind, id) REFERENCES records (kind, id) ON DELETE CASCADE
);
CREATE INDEX record_keys_of ON record_keys (kind, id);
CREATE UNIQUE INDEX record_keys_unique ON record_keys (kind, name, value) WHERE is_unique = 1;

CREATE TABLE audit (
    number COUNTER,
    time BIGINT NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    detail TEXT NOT NULL
);
CREATE INDEX audit_time ON audit (time, number);

CREATE TABLE tasks (
    number COUNTER,
    id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    submission TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    type TEXT NOT NULL,
    wanted TEXT NOT NULL,
    label TEXT,
    source TEXT NOT NULL,
    destination TEXT,
    requested BIGINT NOT NULL,
    deadline BIGINT NOT NULL,
    started BIGINT,
    completed BIGINT,
    status TEXT NOT NULL,
    paused BIGINT NOT NULL,
    situation TEXT NOT NULL,
    counters TEXT NOT NULL,
    left_as BIGINT,
    faults BIGINT NOT NULL,
    failure TEXT,
    fatal TEXT,
    cancelled TEXT,
    gauge TEXT,
    not_before BIGINT NOT NULL,
    troubles BIGINT NOT NULL,
    holder TEXT,
    lease_until BIGINT,
    epoch BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    marks BIGINT NOT NULL,
    events BIGINT NOT NULL,
    UNIQUE (owner, submission)
);
CREATE UNIQUE INDEX tasks_fingerprint ON tasks (owner, fingerprint) WHERE status IN ('ACTIVE', 'INACTIVE');
CREATE INDEX tasks_of ON tasks (owner, requested);
CREATE INDEX tasks_active ON tasks (owner, requested, id) WHERE status = 'ACTIVE';
CREATE INDEX tasks_held ON tasks (holder) WHERE holder IS NOT NULL;
CREATE INDEX tasks_deadline ON tasks (deadline) WHERE status IN ('ACTIVE', 'INACTIVE');

CREATE TABLE submitted (
    task BIGINT NOT NULL REFERENCES tasks (number) ON DELETE CASCADE,
    last BIGINT NOT NULL,
    items BLOB NOT NULL,
    PRIMARY KEY (task, last)
);

CREATE TABLE items (
    task BIGINT NOT NULL REFERENCES tasks (number) ON DELETE CASCADE,
    key BLOB NOT NULL,
    mark BIGINT,
    kind BIGINT NOT NULL,
    extra BIGINT NOT NULL,
    state BIGINT NOT NULL,
    size BIGINT,
    bytes BIGINT NOT NULL,
    proven BIGINT NOT NULL,
    source BLOB NOT NULL,
    destination BLOB NOT NULL,
    sum TEXT,
    fault TEXT,
    time BIGINT NOT NULL,
    PRIMARY KEY (task, key)
);
CREATE INDEX items_mark ON items (task, mark) WHERE mark IS NOT NULL;

CREATE TABLE events (
    task BIGINT NOT NULL REFERENCES tasks (number) ON DELETE CASCADE,
    number BIGINT NOT NULL,
    time BIGINT NOT NULL,
    code TEXT NOT NULL,
    description TEXT NOT NULL,
    details TEXT NOT NULL,
    is_error BIGINT NOT NULL,
    PRIMARY KEY (task, number)
);
