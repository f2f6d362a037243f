/* Running one command, and its result; wrapping. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/json.h"

/* ---- results ---- */

struct sb_result *api_result_new(void) {
  struct sb_result *result = xcalloc(1, sizeof *result);
  result->wall_time = result->cpu_time = -1;
  result->memory_peak = -1;
  return result;
}

void sb_result_free(sb_result *result) {
  if (!result)
    return;
  text_clear(&result->output);
  text_clear(&result->errors);
  free(result->limit_hit);
  free(result->backend);
  free(result->session_id);
  free(result->warnings);
  free(result->json);
  free(result);
}

static char *copy_string(const json_t *object, const char *key) {
  const char *value = json_string_value(json_object_get(object, key));
  return value ? xstrdup(value) : NULL;
}

static double number_or_unknown(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  return json_is_number(value) ? json_number_value(value) : -1;
}

/* As text, or as bytes where it is not UTF-8. */
static void take_stream(const json_t *object, const char *key, struct text *ret_text) {
  _cleanup_free_ char *exact = xasprintf("%s_b64", key);
  const json_t *text = json_object_get(object, key);
  const char *encoded = json_string_value(json_object_get(object, exact));
  size_t length = json_string_length(text);
  _cleanup_free_ char *bytes = encoded ? base64_decode(encoded, &length) : NULL;
  const char *data = bytes ? bytes : json_string_value(text);
  text_append(ret_text, "");
  if (data)
    text_append_bytes(ret_text, data, length);
}

static struct sb_result *make_result(const json_t *object, const struct helper_answer *answer) {
  struct sb_result *result = api_result_new();
  const json_t *usage = json_object_get(object, "resourceUsage");
  result->exit_code = (int)json_integer_value(json_object_get(object, "exitCode"));
  take_stream(object, "stdout", &result->output);
  take_stream(object, "stderr", &result->errors);
  result->wall_time = number_or_unknown(usage, "wallTime");
  result->cpu_time = number_or_unknown(usage, "cpuTime");
  result->memory_peak = (long long)number_or_unknown(usage, "memoryPeak");
  result->limit_hit = copy_string(object, "limitHit");
  result->backend = copy_string(object, "backend");
  result->session_id = copy_string(object, "sid");
  result->warnings = xstrdup(text_string(&answer->errors));
  result->json = json_dumps(object, JSON_COMPACT);
  return result;
}

/* ---- running ---- */

static sb_result *run(const sb_options *options, struct strv *words, struct sb_error *error) {
  _cleanup_answer_ struct helper_answer answer = {0};
  struct helper_call call = {
      .options = options,
      .verb = "run",
      .words = words,
      .wants_status = options && options->on_event,
      .wants_lifeline = true,
  };
  if (helper_run(&call, &answer, error) < 0)
    return NULL;
  json_t *object = helper_json(&answer, error);
  if (!object)
    return NULL;
  struct sb_result *result = make_result(object, &answer);
  json_decref(object);
  return result;
}

static void add_words(struct strv *words, const char *const argv[]) {
  strv_add(words, "--");
  for (; *argv; argv++)
    strv_add(words, *argv);
}

sb_result *sb_run(const sb_options *options, const char *const argv[], sb_error *error) {
  API_ERROR(error);
  _cleanup_strv_ struct strv words = {0};
  if (api_check_words(argv, error_) < 0)
    return NULL;
  strv_add(&words, "--json");
  add_words(&words, argv);
  return run(options, &words, error_);
}

sb_result *sb_run_script(const sb_options *options, const char *script, sb_error *error) {
  API_ERROR(error);
  _cleanup_strv_ struct strv words = {0};
  strv_add(&words, "--json");
  strv_add(&words, "-c");
  strv_add(&words, script);
  return run(options, &words, error_);
}

char *sb_wrap_command(const sb_options *options, const char *backend, const char *const argv[],
                      sb_error *error) {
  API_ERROR(error);
  _cleanup_answer_ struct helper_answer answer = {0};
  _cleanup_strv_ struct strv words = {0};
  if (api_check_words(argv, error_) < 0)
    return NULL;
  strv_addf(&words, "--backend=%s", backend);
  strv_add(&words, "--json");
  add_words(&words, argv);
  struct helper_call call = {.options = options, .verb = "wrap", .words = &words};
  if (helper_run(&call, &answer, error_) < 0)
    return NULL;
  json_t *object = helper_json(&answer, error_);
  char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
  json_decref(object);
  return text;
}

/* ---- asking a result ---- */

int sb_result_success(const sb_result *result) {
  return result->exit_code == 0;
}

int sb_result_exit_code(const sb_result *result) {
  return result->exit_code;
}

static const char *stream(const struct text *text, size_t *ret_length) {
  if (ret_length)
    *ret_length = text->length;
  return text_string(text);
}

const char *sb_result_stdout(const sb_result *result, size_t *ret_length) {
  return stream(&result->output, ret_length);
}

const char *sb_result_stderr(const sb_result *result, size_t *ret_length) {
  return stream(&result->errors, ret_length);
}

double sb_result_wall_time(const sb_result *result) {
  return result->wall_time;
}

double sb_result_cpu_time(const sb_result *result) {
  return result->cpu_time;
}

long long sb_result_memory_peak(const sb_result *result) {
  return result->memory_peak;
}

const char *sb_result_limit_hit(const sb_result *result) {
  return result->limit_hit;
}

const char *sb_result_backend(const sb_result *result) {
  return result->backend;
}

const char *sb_result_session_id(const sb_result *result) {
  return result->session_id;
}

const char *sb_result_warnings(const sb_result *result) {
  return result->warnings ? result->warnings : "";
}

const char *sb_result_json(const sb_result *result) {
  return result->json ? result->json : "{}";
}
