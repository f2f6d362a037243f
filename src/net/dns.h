/* DNS messages of the sandbox's resolver: reads one question, writes one answer. Pure. It reads
 * what a hostile workload sends: a name is never followed backwards more than once, nothing is read
 * beyond the message, and whatever is not one plain question is refused. */
#pragma once

#include "net/address.h"

#define DNS_UDP_SIZE    512
#define DNS_ADDRESSES   16   /* the most in one answer */
#define DNS_ANSWER_SIZE 1232 /* the largest answer we write */

enum {
  DNS_TYPE_A = 1,
  DNS_TYPE_PTR = 12,
  DNS_TYPE_AAAA = 28,
  DNS_TYPE_OPT = 41,
  DNS_TYPE_ANY = 255,
};

enum dns_code {
  DNS_OK = 0,
  DNS_FORMAT_ERROR = 1,
  DNS_SERVER_FAILURE = 2,
  DNS_NO_SUCH_NAME = 3,
  DNS_NOT_IMPLEMENTED = 4,
  DNS_REFUSED = 5,
  DNS_BAD_VERSION = 16, /* of EDNS; its upper bits are in the options */
};

struct dns_question {
  uint16_t id, flags, type, class;
  char name[HOST_NAME_SIZE]; /* lower case, no dot at the end; "" if it is no host name */
  bool is_root;              /* "." */
  bool is_reverse;           /* in-addr.arpa or ip6.arpa */
  struct address reversed;   /* of such a name */
  bool has_options;          /* EDNS */
  uint16_t options_size;     /* the largest answer the asker takes by UDP */
  const uint8_t *question;   /* as it came, to be repeated */
  size_t question_length;
};

/* Reads a message. DNS_OK: a question to answer. Anything else is the code to answer with; if even
 * the header is missing or the message is itself an answer, returns -1: say nothing. */
int dns_read(const uint8_t *message, size_t length, struct dns_question *ret_question);

struct dns_reply {
  enum dns_code code;
  const struct address *addresses; /* A or AAAA, at most DNS_ADDRESSES */
  size_t address_count;
  uint32_t ttl;        /* of the addresses, in seconds; 0: that of a synthetic one */
  const char *pointer; /* PTR, or NULL */
  bool blocked;        /* policy said no: told by an extended error, if asked by EDNS */
};

/* Writes the answer; returns its length. */
size_t dns_write(const struct dns_question *question, const struct dns_reply *reply,
                 uint8_t ret_message[DNS_ANSWER_SIZE]);

/* Only the question, the options and the flag that says: ask again by TCP. */
size_t dns_write_truncated(const struct dns_question *question,
                           uint8_t ret_message[DNS_ANSWER_SIZE]);
