/* The line between the monitor and its relay: a SEQPACKET socket pair with fixed messages. Each end
 * learns of the other's death by end of file. Neither ever waits for the other. */
#pragma once

#include "net/address.h"

enum link_kind {
  /* relay → monitor */
  LINK_READY,    /* confined and at work */
  LINK_ASK,      /* policy does not know the host: what shall it be? Port 0: every one */
  LINK_WITHDRAW, /* nobody waits for that answer any more */
  LINK_RECORD,   /* the first connection to a host and port: write it down before it is made */
  LINK_DENIED,   /* refused; count: how many since the last of these */
  LINK_RENEW,    /* resolv.conf or hosts is another now: send copies */
  /* monitor → relay */
  LINK_ANSWER, /* to a question, or to what is to be written down; allowed: yes or no */
  LINK_FILES,  /* with copies of resolv.conf and hosts, if they could be made */
  LINK_FORGET, /* reason: an entry of the allowed hosts that was taken back */
};

#define RECORD_FAILED "the audit log cannot be written"
#define RECORD_FLOOD  "more new hosts at once than the audit log takes"
#define UNASKED       "not in network.allow, and nobody is there to be asked"

struct link_message {
  uint32_t kind, id, count;
  uint16_t port, client_port;
  uint8_t allowed;
  uint8_t stream;            /* the asking socket's kind … */
  struct address client;     /* … and own name inside: whose is it? */
  char host[HOST_NAME_SIZE]; /* a name or a literal address */
  char reason[REASON_SIZE];
};
