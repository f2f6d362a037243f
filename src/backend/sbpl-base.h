/* The fixed parts of Seatbelt profiles. Private to the generator. */
#pragma once

#include "policy/policy.h"

#define SBPL_LEVEL_COUNT (SEATBELT_PERMISSIVE + 1)

extern const char *const sbpl_base[SBPL_LEVEL_COUNT];
extern const char sbpl_common[], sbpl_open[], sbpl_local_binding[];

/* What only a Mac has, in the home folder. Ends with a NULL path. */
struct sbpl_mac_rule {
  enum rule_kind kind;
  const char *path, *why;
};
extern const struct sbpl_mac_rule sbpl_mac_rules[];
