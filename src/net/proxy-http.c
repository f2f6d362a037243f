/* The HTTP proxy: CONNECT, and requests with absolute addresses, any number over one connection.
 * Each request is decided for itself, whatever the one before was for. */
#include "net/proxy-http.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/text.h"

/* ---- answers of our own ---- */

static void answer(struct flow *flow, const char *status, const char *body) {
  _cleanup_text_ struct text text = {0};
  text_appendf(&text,
               "HTTP/1.1 %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %zu\r\n"
               "X-Sandbox: refused\r\nConnection: close\r\n\r\n%s",
               status, strlen(body), body);
  end_say_last(flow, text_string(&text), text.length);
}

/* Where the reason does not say it itself. */
static void append_remedy(const struct flow *flow, const char *authority, struct text *body) {
  if (flow->guarded || strcmp(flow->reason, RECORD_FAILED) == 0 ||
      strcmp(flow->reason, RECORD_FLOOD) == 0)
    return;
  if (strncmp(flow->reason, "network.deny", strlen("network.deny")) == 0)
    text_append(body, "To allow it, take that rule out of the policy.\n");
  else
    text_appendf(body,
                 "To allow it, start with --allow-network=%s, or add it to network.allow of a "
                 "policy.\n",
                 authority);
}

void http_say_refused(struct flow *flow, bool by_policy) {
  _cleanup_text_ struct text body = {0};
  char authority[AUTHORITY_SIZE];
  authority_to_text(flow->host, flow->port, authority);
  if (!by_policy) {
    text_appendf(&body, "sandbox: cannot reach %s: %s\n", authority, flow->reason);
    answer(flow, "502 Bad Gateway", text_string(&body));
    return;
  }
  text_appendf(&body, "sandbox: %s is not allowed: %s\n", authority, flow->reason);
  append_remedy(flow, authority, &body);
  answer(flow, "403 Forbidden", text_string(&body));
}

/* ---- requests ---- */

/* What was read, with a NUL behind it, out of the way of the next call. */
static char *copy_head(size_t length) {
  char *copy = xmalloc(length + 1);
  memcpy(copy, shared_buffer, length);
  copy[length] = '\0';
  return copy;
}

void http_exchange_free(struct http_exchange *exchange) {
  if (exchange)
    free(exchange->out);
  free(exchange);
}

/* "http://host:port/path" */
static bool split_target(const struct http_request *request, const char **ret_authority,
                         size_t *ret_authority_length, const char **ret_path,
                         size_t *ret_path_length) {
  const char *target = request->target, *end = target + request->target_length;
  if (request->target_length < 8 || strncasecmp(target, "http://", 7) != 0)
    return false;
  const char *authority = target + 7, *path = authority;
  while (path < end && !strchr("/?#", *path))
    path++;
  *ret_authority = authority;
  *ret_authority_length = (size_t)(path - authority);
  *ret_path = path;
  *ret_path_length = (size_t)(end - path);
  return true;
}

/* Whether the proxy's client or the host said it, Host is what was decided about. */
static bool is_dropped(const struct http_field *field) {
  static const char *const dropped[] = {"host", "proxy-connection", "proxy-authorization"};
  for (size_t i = 0; i < ARRAY_SIZE(dropped); i++) {
    if (http_field_is(field, dropped[i]))
      return true;
  }
  return false;
}

static void rewrite(struct flow *flow, const struct http_request *request, const char *path,
                    size_t path_length) {
  struct text text = {0};
  bool v6 = flow->is_address && flow->address.family == 6;
  text_append_bytes(&text, request->method, request->method_length);
  text_append(&text, path_length == 0 || *path != '/' ? " /" : " ");
  text_append_bytes(&text, path, path_length);
  text_appendf(&text, " HTTP/1.%u\r\nHost: %s%s%s", request->head.minor, v6 ? "[" : "", flow->host,
               v6 ? "]" : "");
  if (flow->port != 80)
    text_appendf(&text, ":%u", flow->port);
  text_append(&text, "\r\n");
  const char *at = request->head.fields;
  struct http_field field;
  for (const char *line = at; http_next_field(&at, &field); line = at) {
    if (!is_dropped(&field))
      text_append_bytes(&text, line, (size_t)(at - line));
  }
  text_append(&text, "\r\n");
  struct http_exchange *exchange = xcalloc(1, sizeof *exchange);
  exchange->request = request->head.body;
  exchange->close = request->head.close;
  exchange->no_body = request->method_length == 4 && strncmp(request->method, "HEAD", 4) == 0;
  exchange->out_length = text.length;
  exchange->out = text_steal(&text);
  http_exchange_free(flow->http);
  flow->http = exchange;
}

static bool set_authority(struct flow *flow, const char *text, size_t length, uint16_t port) {
  const char *host;
  size_t host_length;
  return authority_split(text, length, &host, &host_length, &port) && port != 0 &&
         (flow->port = port, flow_set_host(flow, host, host_length));
}

/* The connection of the request before, if it leads to the same place and is still good. */
static bool can_reuse(struct flow *flow, const char *old_host, uint16_t old_port) {
  char byte;
  if (flow->server.watch.fd < 0 || flow->port != old_port || strcmp(flow->host, old_host) != 0)
    return false;
  ssize_t got = recv(flow->server.watch.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got < 0 && errno == EAGAIN;
}

static void leave_host(struct flow *flow) {
  loop_close(&flow->relay->loop, &flow->server.watch);
  end_clear(&flow->client);
  flow->server.ended = flow->server.passed_end = false;
  ledger_closed(flow->relay->input->ledger, flow->line);
  flow->line = NULL;
}

static void start_request(struct flow *flow, const struct http_request *request) {
  const char *authority, *path;
  size_t authority_length, path_length;
  char old_host[HOST_NAME_SIZE];
  uint16_t old_port = flow->port;
  strcpy(old_host, flow->host);
  flow->kind = FLOW_HTTP;
  if (!split_target(request, &authority, &authority_length, &path, &path_length) ||
      !set_authority(flow, authority, authority_length, 80)) {
    answer(flow, "400 Bad Request",
           "sandbox: this is a proxy; it takes CONNECT HOST:PORT and http://HOST/PATH with a "
           "plain host name or address\n");
    return;
  }
  rewrite(flow, request, path, path_length);
  if (can_reuse(flow, old_host, old_port)) {
    flow_connected(flow);
    return;
  }
  leave_host(flow);
  flow_wanted(flow);
}

static void start_connect(struct flow *flow, const struct http_request *request) {
  flow->kind = FLOW_CONNECT;
  leave_host(flow);
  if (set_authority(flow, request->target, request->target_length, 0))
    flow_wanted(flow);
  else
    answer(flow, "400 Bad Request",
           "sandbox: CONNECT needs HOST:PORT with a plain host name or address\n");
}

/* Reads ahead without taking: what follows the head belongs to the body or to the host. */
void http_read(struct flow *flow) {
  ssize_t got = recv(flow->client.watch.fd, shared_buffer, HEAD_LIMIT - 1, MSG_PEEK);
  if (got < 0 && errno == EAGAIN)
    return;
  if (got <= 0) {
    flow_close(flow, false);
    return;
  }
  _cleanup_free_ char *head = copy_head((size_t)got);
  struct http_request request;
  enum http_result result = http_request_parse(head, (size_t)got, &request);
  if (result == HTTP_MORE && got < HEAD_LIMIT - 1) {
    if (flow->client.hung_up) /* the rest will never come */
      answer(flow, "400 Bad Request", "sandbox: the request has no end\n");
    return;
  }
  if (result == HTTP_MORE) {
    answer(flow, "431 Request Header Fields Too Large",
           "sandbox: the request's head is too long\n");
    return;
  }
  if (result == HTTP_WRONG) {
    answer(flow, "400 Bad Request", "sandbox: the request cannot be read\n");
    return;
  }
  end_skip(&flow->client, request.head.length);
  flow->client.readable = true;
  flow->until_ms = 0;
  if (request.method_length == 7 && strncmp(request.method, "CONNECT", 7) == 0)
    start_connect(flow, &request);
  else
    start_request(flow, &request);
}

/* ---- exchanging ---- */

static void count(struct flow *flow, bool up, size_t bytes) {
  ledger_carried(flow->relay->input->ledger, flow->line, up, bytes);
}

void http_say_connected(struct flow *flow) {
  static const char yes[] = "HTTP/1.1 200 Connection established\r\n\r\n";
  if (flow->kind == FLOW_CONNECT) {
    end_write(&flow->client, &flow->server, yes, strlen(yes));
    return;
  }
  struct http_exchange *exchange = flow->http;
  flow->state = FLOW_HTTP_RELAYING;
  flow->inspect = false;
  end_write(&flow->server, &flow->client, exchange->out, exchange->out_length);
  count(flow, true, exchange->out_length);
  flow->server.readable = true;
  http_pump(flow);
}

/* Takes as much as belongs to the body. False: nothing more for now. */
static bool pass_body(struct flow *flow, struct end *from, struct end *to, struct http_body *body) {
  if (!from->readable || http_body_is_over(body) || !end_flush(to, from))
    return false;
  ssize_t got = recv(from->watch.fd, shared_buffer, SHARED_SIZE, MSG_PEEK);
  if (got < 0 && errno == EAGAIN) {
    from->readable = false;
    return false;
  }
  if (got <= 0) {
    from->ended = true;
    return false;
  }
  ptrdiff_t part = http_body_take(body, shared_buffer, (size_t)got);
  if (part < 0) {
    flow_close(flow, true);
    return false;
  }
  end_write(to, from, shared_buffer, (size_t)part);
  end_skip(from, (size_t)part);
  count(flow, from == &flow->client, (size_t)part);
  return true;
}

/* 101: from here on it is no longer HTTP. */
static void become_raw(struct flow *flow) {
  flow->state = FLOW_RELAYING;
  flow->client.readable = flow->server.readable = true;
  pump(flow);
}

/* A host may think about its answer as long as it likes, but what it has begun to say has an end.
 */
static void wait_for_head(struct flow *flow) {
  if (flow->server.hung_up) {
    flow_fail(flow, "it closed the connection in the middle of an answer's head");
    return;
  }
  flow->server.readable = false;
  if (flow->until_ms == 0)
    flow->until_ms = loop_now_ms() + READ_MS;
}

/* There may be some before the answer itself ("100 Continue"). False: nothing more for now. */
static bool pass_response_head(struct flow *flow) {
  struct http_exchange *exchange = flow->http;
  struct end *server = &flow->server;
  if (exchange->answering || !server->readable || !end_flush(&flow->client, server))
    return false;
  ssize_t got = recv(server->watch.fd, shared_buffer, HEAD_LIMIT - 1, MSG_PEEK);
  if (got < 0 && errno == EAGAIN) {
    server->readable = false;
    return false;
  }
  if (got <= 0) {
    flow_fail(flow, "it closed the connection without an answer");
    return false;
  }
  _cleanup_free_ char *head = copy_head((size_t)got);
  struct http_response response;
  enum http_result result = http_response_parse(head, (size_t)got, exchange->no_body, &response);
  if (result == HTTP_MORE && got < HEAD_LIMIT - 1) {
    wait_for_head(flow);
    return false;
  }
  if (result != HTTP_OK) {
    flow_fail(flow, "its answer cannot be read");
    return false;
  }
  flow->until_ms = 0;
  end_write(&flow->client, server, head, response.head.length);
  end_skip(server, response.head.length);
  count(flow, false, response.head.length);
  if (response.status == 101) {
    become_raw(flow);
    return false;
  }
  exchange->answering = response.status >= 200;
  exchange->response = response.head.body;
  exchange->close |= response.head.close;
  return true;
}

static void finish_exchange(struct flow *flow) {
  struct http_exchange *exchange = flow->http;
  bool last = exchange->close || exchange->response.kind == BODY_TO_END || flow->server.ended ||
              !http_body_is_over(&exchange->request);
  if (!end_flush(&flow->client, &flow->server))
    return; /* once more when it is writable */
  http_exchange_free(exchange);
  flow->http = NULL;
  if (last) {
    shutdown(flow->client.watch.fd, SHUT_WR);
    flow_close(flow, false);
    return;
  }
  flow->state = FLOW_READING;
  flow->until_ms = loop_now_ms() + 60000;
  http_read(flow);
}

void http_pump(struct flow *flow) {
  struct http_exchange *exchange = flow->http;
  for (int calls = 0; calls < 64; calls++) {
    (void)end_flush(&flow->server, &flow->client);
    bool more = pass_body(flow, &flow->client, &flow->server, &exchange->request);
    if (flow->state != FLOW_HTTP_RELAYING)
      return;
    more |= pass_response_head(flow);
    if (flow->state != FLOW_HTTP_RELAYING)
      return;
    if (exchange->answering)
      more |= pass_body(flow, &flow->server, &flow->client, &exchange->response);
    if (flow->state != FLOW_HTTP_RELAYING)
      return;
    bool over =
        exchange->answering && (http_body_is_over(&exchange->response) || flow->server.ended);
    if (over) {
      finish_exchange(flow);
      return;
    }
    if (flow->client.ended) {
      flow_close(flow, true);
      return;
    }
    if (!more)
      return;
  }
  want_turn(flow);
}
