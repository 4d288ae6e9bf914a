CREATE TABLE IF NOT EXISTS promptgraft_datasets (
	project VARCHAR(64) NOT NULL, 
	name VARCHAR(64) NOT NULL, 
	number INTEGER NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	cases INTEGER NOT NULL, 
	created DOUBLE PRECISION NOT NULL, 
	author BYTEA NOT NULL, 
	text BYTEA NOT NULL, 
	PRIMARY KEY (project, name, number)
);

CREATE TABLE IF NOT EXISTS promptgraft_jobs (
	number BIGSERIAL NOT NULL, 
	id VARCHAR(32) NOT NULL, 
	project VARCHAR(64) NOT NULL, 
	prompt VARCHAR(64) NOT NULL, 
	tag VARCHAR(64) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	key VARCHAR(200), 
	request BYTEA NOT NULL, 
	origin VARCHAR(32), 
	priority INTEGER NOT NULL, 
	not_before DOUBLE PRECISION NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	wish VARCHAR(16) NOT NULL, 
	reason BYTEA NOT NULL, 
	fence INTEGER NOT NULL, 
	worker VARCHAR(200) NOT NULL, 
	lease DOUBLE PRECISION NOT NULL, 
	synced DOUBLE PRECISION NOT NULL, 
	attempts INTEGER NOT NULL, 
	barren INTEGER NOT NULL, 
	events INTEGER NOT NULL, 
	spent BIGINT NOT NULL, 
	created DOUBLE PRECISION NOT NULL, 
	started DOUBLE PRECISION, 
	ended DOUBLE PRECISION, 
	progress DOUBLE PRECISION NOT NULL, 
	status BYTEA NOT NULL, 
	config BYTEA, 
	result BYTEA, 
	calls INTEGER NOT NULL, 
	retries INTEGER NOT NULL, 
	milliseconds BIGINT NOT NULL, 
	PRIMARY KEY (number), 
	UNIQUE (id), 
	UNIQUE (project, key), 
	UNIQUE (state, number)
);

CREATE TABLE IF NOT EXISTS promptgraft_links (
	digest VARCHAR(64) NOT NULL, 
	token VARCHAR(64) NOT NULL, 
	ends DOUBLE PRECISION NOT NULL, 
	PRIMARY KEY (digest)
);

CREATE TABLE IF NOT EXISTS promptgraft_logins (
	digest VARCHAR(64) NOT NULL, 
	path BYTEA NOT NULL, 
	ends DOUBLE PRECISION NOT NULL, 
	PRIMARY KEY (digest)
);

CREATE TABLE IF NOT EXISTS promptgraft_outbox (
	id BIGSERIAL NOT NULL, 
	hook VARCHAR(64) NOT NULL, 
	job BIGINT NOT NULL, 
	body BYTEA NOT NULL, 
	attempts INTEGER NOT NULL, 
	due DOUBLE PRECISION NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (hook, job, id)
);

CREATE TABLE IF NOT EXISTS promptgraft_schema (
	version SERIAL NOT NULL, 
	hooks VARCHAR(1000) NOT NULL, 
	PRIMARY KEY (version)
);

CREATE TABLE IF NOT EXISTS promptgraft_sessions (
	digest VARCHAR(64) NOT NULL, 
	token VARCHAR(64) NOT NULL, 
	browser VARCHAR(200) NOT NULL, 
	created DOUBLE PRECISION NOT NULL, 
	seen DOUBLE PRECISION NOT NULL, 
	PRIMARY KEY (digest), 
	UNIQUE (token, digest)
);

CREATE TABLE IF NOT EXISTS promptgraft_tags (
	ns VARCHAR(200) NOT NULL, 
	prompt_key VARCHAR(64) NOT NULL, 
	tag VARCHAR(64) NOT NULL, 
	revision VARCHAR(64), 
	PRIMARY KEY (ns, prompt_key, tag)
);

CREATE TABLE IF NOT EXISTS promptgraft_tokens (
	digest VARCHAR(64) NOT NULL, 
	name VARCHAR(64) NOT NULL, 
	scopes VARCHAR(200) NOT NULL, 
	projects BYTEA NOT NULL, 
	created DOUBLE PRECISION NOT NULL, 
	PRIMARY KEY (digest), 
	UNIQUE (name)
);

CREATE TABLE IF NOT EXISTS promptgraft_users (
	digest VARCHAR(64) NOT NULL, 
	name VARCHAR(64) NOT NULL, 
	memberships BYTEA NOT NULL, 
	seen DOUBLE PRECISION NOT NULL, 
	PRIMARY KEY (digest)
);

CREATE TABLE IF NOT EXISTS promptgraft_workers (
	name VARCHAR(200) NOT NULL, 
	version VARCHAR(40) NOT NULL, 
	processes INTEGER NOT NULL, 
	projects BYTEA NOT NULL, 
	avoids BYTEA NOT NULL, 
	started DOUBLE PRECISION NOT NULL, 
	seen DOUBLE PRECISION NOT NULL, 
	PRIMARY KEY (name)
);

CREATE TABLE IF NOT EXISTS promptgraft_answers (
	job BIGINT NOT NULL, 
	position INTEGER NOT NULL, 
	key_digest VARCHAR(64) NOT NULL, 
	line BYTEA NOT NULL, 
	PRIMARY KEY (job, position), 
	UNIQUE (job, key_digest), 
	FOREIGN KEY(job) REFERENCES promptgraft_jobs (number) ON DELETE CASCADE
);

CREATE TABLE IF NOT EXISTS promptgraft_attempts (
	job BIGINT NOT NULL, 
	number INTEGER NOT NULL, 
	worker VARCHAR(200) NOT NULL, 
	started DOUBLE PRECISION NOT NULL, 
	ended DOUBLE PRECISION, 
	answers INTEGER NOT NULL, 
	error BYTEA NOT NULL, 
	day INTEGER NOT NULL, 
	spent BIGINT NOT NULL, 
	PRIMARY KEY (job, number), 
	UNIQUE (day, job, number), 
	FOREIGN KEY(job) REFERENCES promptgraft_jobs (number) ON DELETE CASCADE
);

CREATE TABLE IF NOT EXISTS promptgraft_events (
	job BIGINT NOT NULL, 
	number INTEGER NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	line BYTEA NOT NULL, 
	PRIMARY KEY (job, number), 
	FOREIGN KEY(job) REFERENCES promptgraft_jobs (number) ON DELETE CASCADE
);

CREATE TABLE IF NOT EXISTS promptgraft_revisions (
	ns VARCHAR(200) NOT NULL, 
	prompt_key VARCHAR(64) NOT NULL, 
	tag VARCHAR(64) NOT NULL, 
	number INTEGER NOT NULL, 
	id VARCHAR(64) NOT NULL, 
	document BYTEA NOT NULL, 
	PRIMARY KEY (ns, prompt_key, tag, number), 
	FOREIGN KEY(ns, prompt_key, tag) REFERENCES promptgraft_tags (ns, prompt_key, tag)
);

INSERT INTO promptgraft_schema (version, hooks) VALUES (4, '');
