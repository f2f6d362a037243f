/* What `sandbox run` says about a session; see run-result.h. */
#include "cli/run-result.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/session.h"
#include "cli/values.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/json.h"
#include "core/text.h"

#define USUAL_OUTPUT (16ull << 20)
/* A byte may take six in JSON; two streams; copied on the way to the line, which grows by doubling.
 */
#define RESULT_COST 32

static uint64_t memory_size(void) {
  struct rlimit space;
  uint64_t bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
  bool lower = getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur < bytes;
  return lower ? space.rlim_cur : bytes;
}

int run_output_limit(const char *asked, uint64_t *ret_limit, struct sb_error *error) {
  uint64_t room = memory_size() / RESULT_COST, limit = USUAL_OUTPUT;
  if (asked && value_size("--max-output", asked, &limit, error) < 0)
    return -1;
  if (asked && limit > room) {
    sb_fail(error, SB_CODE_USAGE, 0, "a result of --max-output %s may not fit into memory here",
            asked);
    return sb_hint(error, "--max-output %lluK, or send the output to a file",
                   (unsigned long long)room >> 10);
  }
  *ret_limit = limit < room ? limit : room;
  return 0;
}

static const char *network_name(const struct policy *policy) {
  static const char *const names[] = {
      [NETWORK_NONE] = "disabled", [NETWORK_FILTERED] = "filtered", [NETWORK_FULL] = "full"};
  return names[policy->network.mode];
}

void run_show_header(const struct run_output *output) {
  if (!output->summary)
    return;
  _cleanup_text_ struct text text = {0};
  text_appendf(&text, "sandbox %s  network %s", output->session_id, network_name(output->policy));
  for (int kind = 0; kind < LIMIT_COUNT; kind++) {
    if (output->limits->value[kind] == 0)
      continue;
    _cleanup_free_ char *described = limit_describe(output->limits, kind);
    text_appendf(&text, "  %s %s", limit_title(kind), described);
  }
  fprintf(stderr, "%s\n", text_string(&text));
}

#define SHOWN_DENIALS 8

static bool is_denied(const json_t *host) {
  return strcmp(json_string_value(json_object_get(host, "decision")), "deny") == 0;
}

/* Refused when it was looked up; it never came to a connection. */
static bool is_name_alone(const json_t *host) {
  return json_integer_value(json_object_get(host, "port")) == 0;
}

static void show_denied_host(const struct run_output *output, const json_t *host) {
  _cleanup_free_ char *name = escape_string(json_string_value(json_object_get(host, "host")));
  _cleanup_free_ char *reason = escape_string(json_string_value(json_object_get(host, "reason")));
  const char *protocol = json_string_value(json_object_get(host, "protocol")); /* of a driver */
  bool v6 = strchr(name, ':') != NULL, tcp = !protocol || strcmp(protocol, "tcp") == 0;
  fprintf(stderr, "sandbox %s  denied: %s%s", output->session_id, tcp ? "" : protocol,
          tcp ? "" : " ");
  if (is_name_alone(host))
    fprintf(stderr, "%s (%s)\n", name, reason);
  else
    fprintf(stderr, "%s%s%s:%lld (%s)\n", v6 ? "[" : "", name, v6 ? "]" : "",
            json_integer_value(json_object_get(host, "port")), reason);
}

static size_t count_denied_names(const json_t *network) {
  size_t index, count = 0;
  json_t *host;
  json_array_foreach(json_object_get(network, "hosts"), index, host) {
    count += is_denied(host) && is_name_alone(host) && !json_object_get(host, "protocol");
  }
  return count;
}

static void show_figures(const struct run_output *output, const json_t *network) {
  const char *driver = json_string_value(json_object_get(network, "driver"));
  if (driver)
    fprintf(stderr,
            "sandbox %s  %s: %lld connections, %lld bytes sent, %lld received, "
            "%lld packets refused",
            output->session_id, driver, json_integer_value(json_object_get(network, "connections")),
            json_integer_value(json_object_get(network, "sent")),
            json_integer_value(json_object_get(network, "received")),
            json_integer_value(json_object_get(network, "refused")));
  else
    fprintf(stderr, "sandbox %s  %lld connections, %lld denied", output->session_id,
            json_integer_value(json_object_get(network, "connections")),
            json_integer_value(json_object_get(network, "denied")));
  size_t names = count_denied_names(network);
  if (names > 0)
    fprintf(stderr, ", %zu name%s denied", names, names == 1 ? "" : "s");
  fputc('\n', stderr);
}

/* As many of the hosts that were refused as a person would read. */
static void show_network(const struct run_output *output, const struct session_result *result) {
  size_t index, denied = 0;
  json_t *host;
  if (!result->network)
    return;
  show_figures(output, result->network);
  json_array_foreach(json_object_get(result->network, "hosts"), index, host) {
    if (is_denied(host) && denied++ < SHOWN_DENIALS)
      show_denied_host(output, host);
  }
  if (denied > SHOWN_DENIALS)
    fprintf(stderr, "sandbox %s  and %zu other hosts\n", output->session_id,
            denied - SHOWN_DENIALS);
}

void run_show_footer(const struct run_output *output, const struct session_result *result) {
  if (result->limit_hit) {
    _cleanup_free_ char *described = limit_describe(output->limits, result->limit);
    cli_warn("limit exceeded: %s (%s, held by %s). To allow more, raise %s",
             limit_title(result->limit), described,
             limit_enforcer_text(result->enforcers[result->limit]),
             limit_policy_key(result->limit));
  }
  if (!output->summary)
    return;
  _cleanup_free_ char *peak = show_bytes(result->usage.memory_peak_bytes == USAGE_UNKNOWN
                                             ? -1
                                             : (double)result->usage.memory_peak_bytes);
  fprintf(stderr, "sandbox %s  %s in %.2fs  cpu %.2fs  peak memory %s  exit code %d\n",
          output->session_id, result->exit_code == 0 ? "completed" : "ended", result->wall_seconds,
          result->usage.cpu_ns == USAGE_UNKNOWN ? 0.0 : (double)result->usage.cpu_ns / 1e9, peak,
          result->exit_code);
  if (json_array_size(result->denials) > 0)
    fprintf(stderr, "sandbox %s  denied: %zu; --report or --json lists them\n", output->session_id,
            json_array_size(result->denials));
  show_network(output, result);
}

/* ---- for programs ---- */

static void write_status(const struct run_output *output, json_t *line) {
  _cleanup_free_ char *text = json_line(line);
  json_decref(line);
  if (output->status_fd >= 0)
    (void)file_write_all(output->status_fd, text, strlen(text));
}

void run_show_notice(void *context, const struct session_notice *notice) {
  const struct run_output *output = context;
  switch (notice->event) {
  case SESSION_WARNING:
    cli_warn("%s", notice->text);
    return;
  case SESSION_STARTED:
    write_status(output,
                 json_pack("{s:s, s:s, s:i, s:i}", "event", "started", "sid", output->session_id,
                           "init", (int)notice->init, "pid", (int)notice->command));
    write_status(output, json_pack("{s:s, s:s}", "event", "ready", "sid", output->session_id));
    return;
  case SESSION_LIMIT:
    write_status(output,
                 json_pack("{s:s, s:s, s:s, s:s}", "event", "limit", "sid", output->session_id,
                           "limit", limit_name(notice->result->limit), "value", notice->text));
    return;
  case SESSION_DISCONNECTED:
    write_status(output, json_pack("{s:s, s:s, s:s}", "event", "disconnected", "sid",
                                   output->session_id, "driver", notice->text));
    return;
  case SESSION_EXITED:
    write_status(output, json_pack("{s:s, s:s, s:i}", "event", "exited", "sid", output->session_id,
                                   "exitCode", notice->result->exit_code));
  }
}

static json_t *known(uint64_t value) {
  return value == USAGE_UNKNOWN ? json_null() : json_integer((json_int_t)value);
}

static json_t *usage_json(const struct session_result *result) {
  const struct usage *usage = &result->usage;
  json_t *object = json_pack("{s:f, s:o}", "wallTime", result->wall_seconds, "memoryPeak",
                             known(usage->memory_peak_bytes));
  json_object_set_new(object, "cpuTime",
                      usage->cpu_ns == USAGE_UNKNOWN ? json_null()
                                                     : json_real((double)usage->cpu_ns / 1e9));
  json_object_set_new(object, "processesPeak", known(usage->processes_peak));
  json_object_set_new(object, "ioReadBytes", known(usage->io_read_bytes));
  json_object_set_new(object, "ioWriteBytes", known(usage->io_write_bytes));
  return object;
}

/* What was refused, by decisions and, as far as there was room to list it, by the relay or a
 * driver's rules. */
static json_t *denials_json(const struct session_result *result) {
  json_t *denials = result->denials ? json_copy(result->denials) : json_array(), *host;
  size_t index;
  json_array_foreach(json_object_get(result->network, "hosts"), index, host) {
    if (!is_denied(host) || json_is_true(json_object_get(host, "asked")))
      continue; /* what somebody denied is in the list already */
    json_t *denial = json_pack("{s:s}", "subject", "network");
    static const char *const keys[] = {"host",   "port",        "protocol",
                                       "reason", "connections", "packets"};
    static const char *const names[] = {"host", "port", "protocol", "reason", "count", "count"};
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
      if (json_object_get(host, keys[i])) /* some are a driver's, some the relay's */
        json_object_set(denial, names[i], json_object_get(host, keys[i]));
    }
    json_array_append_new(denials, denial);
  }
  return denials;
}

static json_t *limits_json(const struct run_output *output, const struct session_result *result) {
  json_t *object = json_object();
  for (int kind = 0; kind < LIMIT_COUNT; kind++) {
    if (output->limits->value[kind] == 0)
      continue;
    _cleanup_free_ char *described = limit_describe(output->limits, kind);
    json_object_set_new(object, limit_name(kind),
                        json_pack("{s:s, s:s}", "limit", described, "enforcedBy",
                                  limit_enforcer_text(result->enforcers[kind])));
  }
  return object;
}

char *run_result_line(const struct run_output *output, const struct session_result *result) {
  json_t *object = json_pack(
      "{s:b, s:i, s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "success", result->exit_code == 0,
      "exitCode", result->exit_code, "sid", output->session_id, "backend", output->backend, "mode",
      output->policy->mode == MODE_DYNAMIC ? "dynamic" : "static", "resourceUsage",
      usage_json(result), "limits", limits_json(output, result), "limitHit",
      result->limit_hit ? json_string(limit_name(result->limit)) : json_null(), "denials",
      denials_json(result));
  capture_stream_to_json(&result->capture.streams[0], "stdout", object);
  capture_stream_to_json(&result->capture.streams[1], "stderr", object);
  json_object_set_new(object, "network",
                      result->network ? json_incref(result->network) : json_null());
  json_object_set_new(object, "changes",
                      result->changes ? changes_to_json(result->changes) : json_null());
  char *line = json_line(object);
  json_decref(object);
  return line;
}
