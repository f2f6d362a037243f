/* Private to the relay: the HTTP proxy on the session's loopback. */
#pragma once

#include "net/flow.h"
#include "net/http.h"

/* One request and its answer. */
struct http_exchange {
  struct http_body request, response;
  bool answering; /* the head of the answer has passed */
  bool no_body;   /* HEAD */
  bool close;     /* one side wants it to be the last */
  char *out;      /* the rewritten head, until the host is reached */
  size_t out_length;
};

void http_read(struct flow *flow);
void http_pump(struct flow *flow);
void http_say_connected(struct flow *flow);
void http_say_refused(struct flow *flow, bool by_policy);
void http_exchange_free(struct http_exchange *exchange);
