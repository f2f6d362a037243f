/* Which hosts a policy allows and denies: rules of names, wildcards, addresses and networks, each
 * for all ports or some. Pure. Deny comes before allow; what no rule names is unknown, and an empty
 * list therefore allows nothing. */
#pragma once

#include "core/error.h"
#include "core/strv.h"
#include "net/address.h"

struct host_rule {
  enum { HOST_EXACT, HOST_BELOW, HOST_NETWORK, HOST_ANY } kind;
  char name[HOST_NAME_SIZE]; /* EXACT; BELOW: the part after "*." */
  struct address network;
  unsigned bits;
  uint16_t first_port, last_port; /* 1 to 65535: all */
  char *written;
};

struct host_rules {
  struct host_rule *allow, *deny;
  size_t allow_count, deny_count;
  bool everything; /* what no rule names is allowed: mode full */
};

enum host_verdict { HOST_UNKNOWN, HOST_ALLOWED, HOST_DENIED };

struct host_decision {
  enum host_verdict verdict;
  const struct host_rule *rule; /* the one that decided; NULL if none did */
};

/* HOST, *.DOMAIN, ADDRESS, ADDRESS/BITS, [V6] or * (every host), each with or without :PORT or
 * :FIRST-LAST. What is wrong with it, or NULL. */
const char *host_rule_parse(const char *text, struct host_rule *ret_rule);

/* A name as host_parse gives it; whatever the port. */
bool host_rule_covers_name(const struct host_rule *rule, const char *name);

/* Compiles the lists of a policy; the error quotes the wrong entry. */
int host_rules_new(const struct strv *allow, const struct strv *deny, bool everything,
                   struct host_rules **ret_rules, struct sb_error *error);
void host_rules_free(struct host_rules *rules);

/* An entry of the list of allowed hosts, as it was written, allows nothing any more. Its text stays
 * for whoever was told of it. */
void host_rules_forget(struct host_rules *rules, const char *entry);

/* A name (as host_parse gives it) and a port; port 0 asks whether any port could be allowed. */
struct host_decision host_rules_name(const struct host_rules *rules, const char *name,
                                     uint16_t port);

/* A literal address and a port. What denies an IPv4 address denies the IPv6 addresses that carry
 * it. */
struct host_decision host_rules_address(const struct host_rules *rules,
                                        const struct address *address, uint16_t port);

/* True if a name is denied, on some port at least. */
bool host_rules_deny_names(const struct host_rules *rules);

/* True if a rule lists this address itself, by address or network, and so lifts the guard. */
bool host_rules_list_address(const struct host_rules *rules, const struct address *address,
                             uint16_t port);
