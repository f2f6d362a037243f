/* Packets that the session's packet filter tells of, by the kernel's NFLOG: the first of a
 * connection to somebody new, and the first to somebody whom no rule knows. Only heads are read,
 * and nothing of them is believed but where they came from and where they were to go. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "net/address.h"

/* As in the rules: the group, how much of a packet is told, and the prefix that says why. */
#define SIGHTING_GROUP   1
#define SIGHTING_HEAD    64 /* the longest head of IPv4, and the ports */
#define SIGHTING_OPENED  "opened"
#define SIGHTING_UNKNOWN "unknown"

struct sighting {
  bool unknown;                   /* no rule knows where it goes; else it was let through */
  uint8_t protocol;               /* TCP or UDP */
  struct address client, address; /* where it came from and where it was to go … */
  uint16_t client_port, port;     /* … with both ports */
};

/* In the minder's process, while it has its rights: a socket that hears of them, or a negative
 * errno. */
int sightings_open(int net_ns);

/* The next one; false: there is none for now. */
bool sightings_read(int fd, struct sighting *ret_sighting);

/* A head, as it lies on the wire. False: it is not whole, or nothing that we know. Pure. */
bool sighting_parse(const uint8_t *head, size_t length, struct sighting *ret_sighting);
