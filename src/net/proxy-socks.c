/* SOCKS5 (RFC 1928) as a server: no authentication, CONNECT only. Every byte comes from the
 * workload: a name goes through the strict parser or nowhere. */
#include <errno.h>
#include <string.h>

#include "net/flow.h"
#include "net/socks.h"

void socks_say(struct flow *flow, unsigned code) {
  uint8_t answer[10] = {5, (uint8_t)code, 0, 1};
  if (code == 0)
    end_write(&flow->client, &flow->server, answer, sizeof answer);
  else
    end_say_last(flow, answer, sizeof answer);
}

static void start(struct flow *flow, const struct socks_request *request) {
  flow->port = request->port;
  if (flow_set_host(flow, request->host, request->host_length)) {
    flow_wanted(flow);
    return;
  }
  strcpy(flow->host, "(not a host name)");
  flow_refuse(flow, "the request names no valid host");
}

void socks_read(struct flow *flow) {
  struct end *client = &flow->client;
  uint8_t bytes[SOCKS_LIMIT];
  ssize_t got = recv(client->watch.fd, bytes, sizeof bytes, MSG_PEEK);
  if (got < 0 && errno == EAGAIN)
    return;
  struct socks_request request;
  enum socks_result result =
      got <= 0 ? SOCKS_WRONG : socks_parse(bytes, (size_t)got, flow->greeted, &request);
  if (result == SOCKS_MORE && client->hung_up)
    result = SOCKS_WRONG; /* there is no more */
  switch (result) {
  case SOCKS_MORE:
    return;
  case SOCKS_GREETED:
    end_skip(client, request.used);
    flow->greeted = true;
    end_write(client, &flow->server, (const uint8_t[]){5, 0}, 2);
    socks_read(flow); /* the request may be there already */
    return;
  case SOCKS_REQUEST:
    end_skip(client, request.used);
    client->readable = true;
    start(flow, &request);
    return;
  case SOCKS_NO_METHOD:
    end_say_last(flow, (const uint8_t[]){5, 0xff}, 2);
    return;
  case SOCKS_NO_COMMAND:
    socks_say(flow, 7);
    return;
  case SOCKS_WRONG:
    flow_close(flow, true);
  }
}
