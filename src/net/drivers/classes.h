/* A packet has an address and a port, and no name. What a rule about a name opens is therefore kept
 * in sets of addresses, one for each range of ports that such rules tell apart: a class. Pure. */
#pragma once

#include "net/match.h"

#define PORT_CLASSES 32 /* a bit each */

struct port_class {
  uint16_t first, last; /* 1 to 65535: also what has no ports, as a rule without ports means it */
};

struct port_classes {
  size_t count, start_count;
  struct port_class items[PORT_CLASSES];
  uint16_t starts[2 * PORT_CLASSES]; /* where a range begins; sorted, the first is 1 */
};

/* True if a rule is about a name. */
bool host_rules_have_names(const struct host_rules *rules);

/* Names that no rule knows may be approved when somebody is asked: then every range is a class. 0,
 * or -1: the rules tell more ranges apart than there are classes. */
int port_classes_new(const struct host_rules *rules, bool asks, struct port_classes *ret_classes);

/* Those that an address of this name belongs to: what rules about names allow, or all if it was
 * approved, and none of them denies. Rules about addresses and about all hosts are the packet
 * filter's own. */
uint32_t port_classes_of(const struct port_classes *classes, const struct host_rules *rules,
                         const char *name, bool approved);
