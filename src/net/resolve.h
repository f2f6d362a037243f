/* Names to addresses, outside the sandbox, without ever blocking: c-ares with the machine's own
 * resolv.conf and hosts file. Only names that policy allows come here. */
#pragma once

#include "net/address.h"
#include "net/loop.h"
#include "net/name-files.h"

#define RESOLVE_LIMIT 16 /* addresses of one name that are tried */

enum resolve_status { RESOLVE_OK, RESOLVE_NO_SUCH_NAME, RESOLVE_NO_ADDRESS, RESOLVE_FAILED };

struct resolved {
  enum resolve_status status;
  struct address addresses[RESOLVE_LIMIT];
  size_t count;
  uint32_t ttl; /* in seconds, the shortest of them; 0: unknown */
};

typedef void resolve_callback(void *context, const struct resolved *resolved);

struct resolver;

/* The machine's files are others now: somebody shall bring copies of them. */
typedef void resolve_renew(void);

/* NULL if there is no memory or no configuration at all. */
struct resolver *resolver_new(struct loop *loop, resolve_renew *renew);

/* Here they are, or -1 where not; takes them. Never from a callback: the library may be at work in
 * what is replaced. */
void resolver_take_files(struct resolver *resolver, const int copies[NAME_FILES]);

/* Calls back exactly once: at once if the answer is remembered, else later. */
void resolver_ask(struct resolver *resolver, const char *name, resolve_callback *callback,
                  void *context);

/* True if `name` is `stem` with one of this machine's `search` domains behind it. */
bool resolver_completes(const struct resolver *resolver, const char *stem, const char *name);

/* The callback must not come any more. */
void resolver_withdraw(struct resolver *resolver, void *context);

/* When to call resolver_tick at the latest, in milliseconds; -1: no need. */
int resolver_timeout(struct resolver *resolver);
void resolver_tick(struct resolver *resolver);
