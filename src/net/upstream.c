/* Through an upstream proxy: HTTP CONNECT or SOCKS5 with names. The proxy resolves, so the guard on
 * addresses is its task; policy on names and literal addresses is still ours. */
#include "net/upstream.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ANSWER_LIMIT 8192

const char *upstream_parse(const char *text, bool socks, struct upstream *ret_upstream) {
  struct upstream upstream = {.kind = socks ? UPSTREAM_SOCKS : UPSTREAM_HTTP};
  static const char *const schemes[] = {"http://", "socks5://", "socks5h://"};
  const char *host = text;
  for (size_t i = 0; i < 3; i++) {
    if (strncmp(text, schemes[i], strlen(schemes[i])) != 0)
      continue;
    if (socks != (i > 0))
      return socks ? "is no SOCKS proxy" : "is no HTTP proxy";
    host = text + strlen(schemes[i]);
  }
  size_t length = strcspn(host, "/");
  if (host[length] == '/' && host[length + 1] != '\0')
    return "has a path; write HOST:PORT";
  if (port_parse(host, length, &upstream.port)) { /* seed 001 names only a port */
    strcpy(upstream.host, "127.0.0.1");
    *ret_upstream = upstream;
    return NULL;
  }
  const char *name;
  struct address address;
  size_t name_length;
  if (!authority_split(host, length, &name, &name_length, &upstream.port) || upstream.port == 0)
    return "is not HOST:PORT, a port, or either with a scheme before it";
  if (address_parse(name, name_length, &address))
    address_to_text(&address, upstream.host);
  else if (!host_parse(name, name_length, upstream.host))
    return "does not name a host";
  *ret_upstream = upstream;
  return NULL;
}

static size_t write_connect(const struct flow *flow, char *ret, size_t size) {
  bool v6 = flow->is_address && flow->address.family == 6;
  int length = snprintf(ret, size, "CONNECT %s%s%s:%u HTTP/1.1\r\nHost: %s%s%s:%u\r\n\r\n",
                        v6 ? "[" : "", flow->host, v6 ? "]" : "", flow->port, v6 ? "[" : "",
                        flow->host, v6 ? "]" : "", flow->port);
  return (size_t)length;
}

/* The greeting and the request in one go: only "no authentication" is offered, so the answer to the
 * first is known. */
static size_t write_socks(const struct flow *flow, char *ret) {
  static const char greeting[] = {5, 1, 0, 5, 1, 0};
  char *at = ret + sizeof greeting;
  memcpy(ret, greeting, sizeof greeting);
  if (flow->is_address) {
    size_t size = flow->address.family == 6 ? 16 : 4;
    *at++ = flow->address.family == 6 ? 4 : 1;
    memcpy(at, flow->address.bytes, size);
    at += size;
  } else {
    size_t size = strlen(flow->host);
    *at++ = 3;
    *at++ = (char)size;
    memcpy(at, flow->host, size);
    at += size;
  }
  *at++ = (char)(flow->port >> 8);
  *at++ = (char)flow->port;
  return (size_t)(at - ret);
}

void upstream_begin(struct flow *flow) {
  char request[1024];
  bool socks = flow->relay->input->upstream.kind == UPSTREAM_SOCKS;
  size_t length = socks ? write_socks(flow, request) : write_connect(flow, request, sizeof request);
  flow->state = FLOW_UPSTREAM;
  end_write(&flow->server, &flow->client, request, length);
  upstream_read(flow);
}

/* How long the proxy's answer is; 0: more is needed, -1: it says no. */
static int answer_http(const char *bytes, size_t length) {
  const char *end = memmem(bytes, length, "\r\n\r\n", 4);
  if (length >= 12 && (strncmp(bytes, "HTTP/1.", 7) != 0 || bytes[9] != '2'))
    return -1;
  if (!end)
    return length >= ANSWER_LIMIT ? -1 : 0;
  return (int)(end - bytes) + 4;
}

static int answer_socks(const uint8_t *bytes, size_t length) {
  if (length >= 2 && (bytes[0] != 5 || bytes[1] != 0))
    return -1;
  if (length < 7)
    return 0;
  if (bytes[2] != 5 || bytes[3] != 0)
    return -1;
  size_t whole = bytes[5] == 1 ? 2 + 10 : bytes[5] == 4 ? 2 + 22 : 2 + 7 + bytes[6];
  return length < whole ? 0 : (int)whole;
}

void upstream_read(struct flow *flow) {
  if (!end_flush(&flow->server, &flow->client))
    return;
  ssize_t got = recv(flow->server.watch.fd, shared_buffer, ANSWER_LIMIT, MSG_PEEK);
  if (got < 0 && errno == EAGAIN)
    return;
  int answer = -1;
  if (got > 0)
    answer = flow->relay->input->upstream.kind == UPSTREAM_SOCKS
                 ? answer_socks((const uint8_t *)shared_buffer, (size_t)got)
                 : answer_http(shared_buffer, (size_t)got);
  if (answer == 0)
    return;
  if (answer < 0) {
    flow_fail(flow, "the upstream proxy %s:%u refuses", flow->relay->input->upstream.host,
              flow->relay->input->upstream.port);
    return;
  }
  end_skip(&flow->server, (size_t)answer);
  flow->server.readable = true;
  flow_connected(flow);
}
