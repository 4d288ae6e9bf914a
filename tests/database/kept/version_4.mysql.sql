CREATE TABLE IF NOT EXISTS promptgraft_datasets (
	project VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	number INTEGER NOT NULL, 
	digest VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	cases INTEGER NOT NULL, 
	created DOUBLE NOT NULL, 
	author LONGBLOB NOT NULL, 
	text LONGBLOB NOT NULL, 
	PRIMARY KEY (project, name, number)
)ENGINE=InnoDB;

CREATE TABLE IF NOT EXISTS promptgraft_jobs (
	number BIGINT NOT NULL AUTO_INCREMENT, 
	id VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	project VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	prompt VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	tag VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	digest VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	`key` VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin, 
	request LONGBLOB NOT NULL, 
	origin VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin, 
	priority INTEGER NOT NULL, 
	not_before DOUBLE NOT NULL, 
	state VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	wish VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	reason LONGBLOB NOT NULL, 
	fence INTEGER NOT NULL, 
	worker VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	lease DOUBLE NOT NULL, 
	synced DOUBLE NOT NULL, 
	attempts INTEGER NOT NULL, 
	barren INTEGER NOT NULL, 
	events INTEGER NOT NULL, 
	spent BIGINT NOT NULL, 
	created DOUBLE NOT NULL, 
	started DOUBLE, 
	ended DOUBLE, 
	progress DOUBLE NOT NULL, 
	status LONGBLOB NOT NULL, 
	config LONGBLOB, 
	result LONGBLOB, 
	calls INTEGER NOT NULL, 
	retries INTEGER NOT NULL, 
	milliseconds BIGINT NOT NULL, 
	PRIMARY KEY (number), 
	UNIQUE (id), 
	UNIQUE (project, `key`), 
	UNIQUE (state, number)
)ENGINE=InnoDB;

CREATE TABLE IF NOT EXISTS promptgraft_links (
	digest VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	token VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	ends DOUBLE NOT NULL, 
	PRIMARY KEY (digest)
)ENGINE=InnoDB;

CREATE TABLE IF NOT EXISTS promptgraft_logins (
	digest VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	path LONGBLOB NOT NULL, 
	ends DOUBLE NOT NULL, 
	PRIMARY KEY (digest)
)ENGINE=InnoDB;

CREATE TABLE IF NOT EXISTS promptgraft_outbox (
	id BIGINT NOT NULL AUTO_INCREMENT, 
	hook VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	job BIGINT NOT NULL, 
	body LONGBLOB NOT NULL, 
	attempts INTEGER NOT NULL, 
	due DOUBLE NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (hook, job, id)
)ENGINE=InnoDB;

CREATE TABLE IF NOT EXISTS promptgraft_schema (
	version INTEGER NOT NULL AUTO_INCREMENT, 
	hooks VARCHAR(1000) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	PRIMARY KEY (version)
)ENGINE=InnoDB;

CREATE TABLE IF NOT EXISTS promptgraft_sessions (
	digest VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	token VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	browser VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	created DOUBLE NOT NULL, 
	seen DOUBLE NOT NULL, 
	PRIMARY KEY (digest), 
	UNIQUE (token, digest)
)ENGINE=InnoDB;

CREATE TABLE IF NOT EXISTS promptgraft_tags (
	ns VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	prompt_key VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	tag VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	revision VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin, 
	PRIMARY KEY (ns, prompt_key, tag)
)ENGINE=InnoDB;

CREATE TABLE IF NOT EXISTS promptgraft_tokens (
	digest VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	scopes VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	projects LONGBLOB NOT NULL, 
	created DOUBLE NOT NULL, 
	PRIMARY KEY (digest), 
	UNIQUE (name)
)ENGINE=InnoDB;

CREATE TABLE IF NOT EXISTS promptgraft_users (
	digest VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	memberships LONGBLOB NOT NULL, 
	seen DOUBLE NOT NULL, 
	PRIMARY KEY (digest)
)ENGINE=InnoDB;

CREATE TABLE IF NOT EXISTS promptgraft_workers (
	name VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	version VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	processes INTEGER NOT NULL, 
	projects LONGBLOB NOT NULL, 
	avoids LONGBLOB NOT NULL, 
	started DOUBLE NOT NULL, 
	seen DOUBLE NOT NULL, 
	PRIMARY KEY (name)
)ENGINE=InnoDB;

CREATE TABLE IF NOT EXISTS promptgraft_answers (
	job BIGINT NOT NULL, 
	position INTEGER NOT NULL, 
	key_digest VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	line LONGBLOB NOT NULL, 
	PRIMARY KEY (job, position), 
	UNIQUE (job, key_digest), 
	FOREIGN KEY(job) REFERENCES promptgraft_jobs (number) ON DELETE CASCADE
)ENGINE=InnoDB;

CREATE TABLE IF NOT EXISTS promptgraft_attempts (
	job BIGINT NOT NULL, 
	number INTEGER NOT NULL, 
	worker VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	started DOUBLE NOT NULL, 
	ended DOUBLE, 
	answers INTEGER NOT NULL, 
	error LONGBLOB NOT NULL, 
	day INTEGER NOT NULL, 
	spent BIGINT NOT NULL, 
	PRIMARY KEY (job, number), 
	UNIQUE (day, job, number), 
	FOREIGN KEY(job) REFERENCES promptgraft_jobs (number) ON DELETE CASCADE
)ENGINE=InnoDB;

CREATE TABLE IF NOT EXISTS promptgraft_events (
	job BIGINT NOT NULL, 
	number INTEGER NOT NULL, 
	kind VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	line LONGBLOB NOT NULL, 
	PRIMARY KEY (job, number), 
	FOREIGN KEY(job) REFERENCES promptgraft_jobs (number) ON DELETE CASCADE
)ENGINE=InnoDB;

CREATE TABLE IF NOT EXISTS promptgraft_revisions (
	ns VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	prompt_key VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	tag VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	number INTEGER NOT NULL, 
	id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, 
	document LONGBLOB NOT NULL, 
	PRIMARY KEY (ns, prompt_key, tag, number), 
	FOREIGN KEY(ns, prompt_key, tag) REFERENCES promptgraft_tags (ns, prompt_key, tag)
)ENGINE=InnoDB;

INSERT INTO promptgraft_schema (version, hooks) VALUES (4, '');
