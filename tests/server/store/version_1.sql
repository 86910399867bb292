BEGIN TRANSACTION;
CREATE TABLE contributions (
    id TEXT PRIMARY KEY, map TEXT NOT NULL, token TEXT NOT NULL, digest TEXT NOT NULL, bytes BIGINT NOT NULL,
    facts TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL, received DOUBLE PRECISION NOT NULL,
    expires DOUBLE PRECISION, UNIQUE (map, token, digest)
);
INSERT INTO "contributions" VALUES('cc4bb86c3d1c42710','mdf6af1d8303e61cd','tf5b165224a58b791','7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed',3,'{"form": "subspaces", "profile": "hardened", "epsilon": null, "positions": "positions", "features": 500, "kind": "subspaces", "guarantee": null}','mapped','',1790000005.0,NULL);
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO "facts" VALUES('version','1');
CREATE TABLE jobs (
    id TEXT PRIMARY KEY, map TEXT NOT NULL, kind TEXT NOT NULL, token TEXT NOT NULL, state TEXT NOT NULL, step TEXT NOT NULL,
    done BIGINT NOT NULL, total BIGINT NOT NULL, result TEXT NOT NULL, worker TEXT NOT NULL, lease DOUBLE PRECISION NOT NULL,
    attempts INTEGER NOT NULL, created DOUBLE PRECISION NOT NULL, ended DOUBLE PRECISION
);
INSERT INTO "jobs" VALUES('j1bcccea696762e61','mdf6af1d8303e61cd','update','tf5b165224a58b791','queued','',0,0,'{}','',0.0,0,1790000008.0,NULL);
CREATE TABLE maps (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, policy TEXT NOT NULL, created DOUBLE PRECISION NOT NULL,
    version INTEGER NOT NULL, files TEXT NOT NULL, facts TEXT NOT NULL
);
INSERT INTO "maps" VALUES('mdf6af1d8303e61cd','lobby','{"forms": ["subspaces", "words"], "least_profile": "hardened", "max_epsilon": null, "lines_only": false, "max_features": 4096, "max_bytes": 16777216, "keep_days": null}',1790000004.0,1,'{"descriptors.h5": "60be9861750facbfad8758254a2f76c0cfe78d54459a3bc187d49b1401fcd8e8"}','{"models": [{"images": 2, "points": 10}]}');
CREATE TABLE receipts (
    number INTEGER PRIMARY KEY, contribution TEXT NOT NULL, token TEXT NOT NULL, content TEXT NOT NULL,
    content_digest TEXT NOT NULL, digest TEXT NOT NULL
);
INSERT INTO "receipts" VALUES(1,'c3c344c4189eb2f1e','tf5b165224a58b791','{"contribution": "c3c344c4189eb2f1e", "map": "mdf6af1d8303e61cd", "message_sha256": "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3", "bytes": 3, "received": 1790000006.0, "deleted": 1790000007.0, "token": "tf5b165224a58b791", "why": "asked", "features": 0, "nonce": "7bd5d47e446fcec2a3d811736110e578"}','0e7c110dc3c5aaf390c44b8a827d2c4dd3b5aa8dbac228c570eeb196d8003e2a','eec0285202fd9fad39a15356b6a86eb534d29a1e660fc24e297c98a62693f6cb');
CREATE TABLE tokens (
    id TEXT PRIMARY KEY, digest TEXT NOT NULL UNIQUE, name TEXT NOT NULL, scopes TEXT NOT NULL, maps TEXT,
    requests_per_minute INTEGER NOT NULL, bytes_per_day BIGINT NOT NULL, created DOUBLE PRECISION NOT NULL,
    revoked DOUBLE PRECISION
);
INSERT INTO "tokens" VALUES('tf5b165224a58b791','b8eae0172911e1c9c34b3e2c5203e33524896f8a671f2c0d5a0b31ebe445a460','administrator','admin',NULL,600,10737418240,1790000002.0,NULL);
CREATE TABLE usage (
    token TEXT NOT NULL, period TEXT NOT NULL, requests BIGINT NOT NULL, bytes BIGINT NOT NULL, PRIMARY KEY (token, period)
);
INSERT INTO "usage" VALUES('tf5b165224a58b791','m000029833333',1,5);
INSERT INTO "usage" VALUES('tf5b165224a58b791','d000000020717',1,5);
CREATE INDEX contributions_by_digest ON contributions (digest);
CREATE INDEX jobs_by_state ON jobs (state, created);
CREATE INDEX receipts_by_contribution ON receipts (contribution);
COMMIT;
