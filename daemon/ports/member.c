// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Which adapter serves which member URI, and the member port's calls.
 *
 * Adapters enter the table from constructors (MEMBER_ADAPTER), so this file names none of them:
 * an adapter is in a build if its file is. The table is written before main() only.
 *
 * Called by the runtime on the loop's thread. Holds no state but the table.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "daemon/ports/member.h"

static const struct member_ops *adapters[MEMBER_MAX_ADAPTERS];
static unsigned int adapter_count;

void member_register(const struct member_ops *ops)
{
	assert(adapter_count < MEMBER_MAX_ADAPTERS);
	assert(ops->schemes && ops->open && ops->submit && ops->cancel && ops->close);
	adapters[adapter_count++] = ops;
}

const struct member_ops *member_find(const char *uri)
{
	const char *scheme = "file", *end = strstr(uri, "://");
	size_t len = strlen(scheme);
	unsigned int i;
	const char *const *s;

	if (uri[0] != '/') {
		if (!end)
			return NULL;
		scheme = uri;
		len = (size_t)(end - uri);
	}
	for (i = 0; i < adapter_count; i++)
		for (s = adapters[i]->schemes; *s; s++)
			if (strlen(*s) == len && !strncasecmp(*s, scheme, len))
				return adapters[i];
	return NULL;
}

void member_cfg_init(struct member_cfg *cfg)
{
	*cfg = (struct member_cfg){
	    .max_inflight_bytes = MEMBER_INFLIGHT_BYTES,
	    .connections = 1,
	    .connect_timeout_ms = MEMBER_CONNECT_MS,
	    .request_timeout_ms = MEMBER_REQUEST_MS,
	    .zombie_timeout_ms = MEMBER_ZOMBIE_MS,
	    .backoff_min_ms = MEMBER_BACKOFF_MIN_MS,
	    .backoff_max_ms = MEMBER_BACKOFF_MAX_MS,
	    .shared = true,
	};
}

static const char *cfg_check(const struct member_cfg *cfg)
{
	if (cfg->max_inflight_bytes < 1u << 20 ||
	    cfg->max_inflight_bytes > MEMBER_MAX_INFLIGHT_BYTES)
		return "member: max_inflight_bytes must be from 1 MiB to 256 MiB";
	if (!cfg->connections || cfg->connections > MEMBER_MAX_CONNECTIONS)
		return "member: connections must be from 1 to 8";
	if (!cfg->connect_timeout_ms)
		return "member: connect_timeout_ms must not be 0";
	if (!cfg->backoff_min_ms || cfg->backoff_max_ms < cfg->backoff_min_ms)
		return "member: backoff_max_ms must not be less than backoff_min_ms, nor that 0";
	return NULL;
}

int member_open(const char *uri, struct loop *loop, const struct member_cfg *cfg,
		const struct member_cb *cb, void *arg, struct member **m, const char **why)
{
	const struct member_ops *ops = member_find(uri);

	assert(cb->up && cb->down && cb->done && cb->closed);
	if (!ops) {
		*why = "member: no adapter for this URI; known are /PATH and the schemes of "
		       "this build (file, nbd, nbd+unix)";
		return -EPROTONOSUPPORT;
	}
	if (strlen(uri) >= DDR_URI_BYTES) {
		*why = "member: the URI is too long; 511 bytes at most";
		return -EINVAL;
	}
	*why = cfg_check(cfg);
	if (*why)
		return -EINVAL;
	return ops->open(uri, loop, cfg, cb, arg, m, why);
}

void member_submit(struct member *m, struct member_req *req)
{
	m->ops->submit(m, req);
}

void member_cancel(struct member *m)
{
	m->ops->cancel(m);
}

void member_close(struct member *m)
{
	m->ops->close(m);
}

void member_lease(struct member *m, uint64_t until_us)
{
	m->ops->lease(m, until_us);
}

void member_fenced(struct member *m, uint64_t connection, int err)
{
	if (m->ops->fenced)
		m->ops->fenced(m, connection, err);
}
