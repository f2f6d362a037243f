/* The server name in the first bytes of a TLS connection. Pure; reads what a hostile workload
 * sends. Servers differ in what they take: whatever one of them takes for a hello is one here, and
 * what some of them skip before it is refused. */
#pragma once

#include "net/address.h"

#define TLS_HELLO_LIMIT (32 * 1024)

enum tls_result {
  TLS_NOT_TLS, /* does not begin like TLS; later: no other hello can come */
  TLS_MORE,    /* so far so good; more bytes are needed */
  TLS_NO_NAME, /* a whole ClientHello without a server name */
  TLS_NAME,    /* with one */
  TLS_RECORD,  /* something else, behind which another hello may come */
  TLS_BROKEN,  /* begins like TLS and then is not, or has a name that is none */
};

/* What was found. */
struct tls_hello {
  char name[HOST_NAME_SIZE];
  size_t length;   /* of its records, the heads included */
  bool early_data; /* servers may skip encrypted data behind it */
};

/* The first bytes of a client. */
enum tls_result tls_first(const uint8_t *bytes, size_t length, struct tls_hello *ret_hello);

/* The next ones, behind the records that were found before. A server may ask for a second hello
 * (HelloRetryRequest), and it is that one's name which counts for many. `early_data`: as the hellos
 * before it had it. */
enum tls_result tls_next(const uint8_t *bytes, size_t length, bool early_data,
                         struct tls_hello *ret_hello);
