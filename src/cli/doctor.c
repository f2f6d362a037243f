/* sandbox doctor: prints what the doctor found. Decides nothing. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "core/child.h"
#include "core/cleanup.h"
#include "core/json.h"
#include "doctor/doctor.h"

enum { OPTION_JSON, OPTION_VERBOSE, OPTION_QUICK };

static const struct option_spec options[] = {
    {OPTION_JSON, "json", .help = "print the report as JSON"},
    {OPTION_VERBOSE, "verbose", 'v', .help = "also say what each row is needed for"},
    {OPTION_QUICK, "quick", .help = "leave out the back ends, which take most of the time"},
    {.name = NULL},
};

static bool is_given(const struct invocation *invocation, int id) {
  for (size_t i = 0; i < invocation->option_count; i++)
    if (invocation->options[i].spec->id == id)
      return true;
  return false;
}

static json_t *row_to_json(const struct doctor_row *row) {
  json_t *object = json_object();
  json_set_string(object, "id", row->id);
  json_set_string(object, "group", row->group);
  json_set_string(object, "state", doctor_state_name(row->state));
  json_set_string(object, "found", row->found);
  json_set_string(object, "needed_for", row->needed_for);
  json_set_string(object, "fix", row->fix);
  return object;
}

static json_t *verdict_to_json(const struct doctor_verdict *verdict) {
  json_t *object = json_object();
  json_object_set_new(object, "available", json_boolean(verdict->available));
  json_set_string(object, "gate", verdict->gate);
  json_set_string(object, "gate_why", verdict->gate_why);
  json_set_string(object, "why", verdict->why);
  json_set_string(object, "fix", verdict->fix);
  return object;
}

/* In a process of its own: whatever kills it here must not take the rest of the report with it. */
static pid_t start_backends(int output, const char *option) {
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) {
    if (output < 0 || dup2(output, STDOUT_FILENO) >= 0)
      execl("/proc/self/exe", "sandbox", "backends", option, (char *)NULL);
    _exit(127);
  }
  return pid;
}

static bool has_succeeded(pid_t pid) {
  return pid > 0 && child_wait(pid) == 0;
}

static void print_backends(void) {
  if (has_succeeded(start_backends(-1, NULL)))
    putchar('\n');
}

/* The list as `sandbox backends --json` has it, or null. */
static json_t *backends_json(void) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0)
    return json_null();
  pid_t pid = start_backends(ends[1], "--json");
  close(ends[1]);
  json_t *answer = json_loadfd(ends[0], JSON_DISABLE_EOF_CHECK, NULL);
  close(ends[0]);
  json_t *list = has_succeeded(pid) ? json_incref(json_object_get(answer, "backends")) : NULL;
  json_decref(answer);
  return list ? list : json_null();
}

static void print_json(const struct doctor_report *report, bool quick) {
  json_t *rows = json_array();
  for (size_t i = 0; i < report->count; i++)
    json_array_append_new(rows, row_to_json(&report->rows[i]));
  json_t *object = json_object();
  json_object_set_new(object, "rows", rows);
  json_object_set_new(object, "native", verdict_to_json(&report->native));
  if (!quick)
    json_object_set_new(object, "backends", backends_json());
  _cleanup_free_ char *line = json_line(object);
  fputs(line, stdout);
  json_decref(object);
}

static const char *colour_of(enum doctor_state state) {
  static const char *const colours[DOCTOR_STATE_COUNT] = {
      [DOCTOR_OK] = "\033[32m",
      [DOCTOR_DEGRADED] = "\033[33m",
      [DOCTOR_RESTRICTED] = "\033[31m",
      [DOCTOR_MISSING] = "\033[31m",
  };
  return colours[state];
}

static bool wants_colour(void) {
  const char *refused = getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) && !(refused && *refused);
}

static int title_width(const struct doctor_report *report) {
  size_t width = 0;
  for (size_t i = 0; i < report->count; i++)
    if (strlen(report->rows[i].title) > width)
      width = strlen(report->rows[i].title);
  return (int)width;
}

/* One cause takes many rows down with it; its fix is said once. */
static bool repeats_fix(const struct doctor_row *row, const struct doctor_row *previous) {
  return row->fix && previous && previous->fix && strcmp(row->fix, previous->fix) == 0;
}

static void print_row(const struct doctor_row *row, int width, bool colour, bool verbose,
                      bool with_fix) {
  const int state_width = 10;
  printf("  %s%-*s%s  %-*s  %s\n", colour ? colour_of(row->state) : "", state_width,
         doctor_state_name(row->state), colour ? "\033[0m" : "", width, row->title, row->found);
  int indent = 2 + state_width + 2 + width + 2;
  if (verbose)
    printf("%*sneeded for: %s\n", indent, "", row->needed_for);
  if (row->fix && with_fix)
    printf("%*sfix: %s\n", indent, "", row->fix);
}

/* What makes a call wait in dynamic mode, and why it is not the better one. */
static void print_ready(const struct doctor_verdict *verdict) {
  const char *why = verdict->gate_why ? verdict->gate_why : "";
  if (strcmp(verdict->gate, "none") == 0)
    printf("native engine: ready, but nothing can be asked (use --static), because %s\n", why);
  else if (strcmp(verdict->gate, "notify") == 0)
    printf("native engine: ready; asks by seccomp notify, which is slower, because %s\n", why);
  else
    printf("native engine: ready; asks by FUSE\n");
}

static void print_verdict(const struct doctor_verdict *verdict) {
  if (verdict->available)
    print_ready(verdict);
  else
    printf("native engine: not available: because %s; fix: %s\n", verdict->why,
           verdict->fix ? verdict->fix : "none known");
}

static void print_table(const struct doctor_report *report, bool verbose, bool quick) {
  bool colour = wants_colour();
  int width = title_width(report);
  const char *group = "";
  for (size_t i = 0; i < report->count; i++) {
    const struct doctor_row *row = &report->rows[i];
    if (strcmp(group, row->group) != 0)
      printf("%s%s\n", i ? "\n" : "", row->group);
    group = row->group;
    print_row(row, width, colour, verbose, !repeats_fix(row, i ? row - 1 : NULL));
  }
  putchar('\n');
  if (!quick)
    print_backends();
  print_verdict(&report->native);
}

/* Nobody must take half a report for a whole one. */
static int check_printed(void) {
  _cleanup_error_ struct sb_error error = {0};
  if (fflush(stdout) == 0 && !ferror(stdout))
    return 0;
  sb_fail_errno(&error, "cannot write to standard output");
  return cli_report(&error);
}

static int run(const struct invocation *invocation) {
  _cleanup_doctor_report_ struct doctor_report report;
  bool quick = is_given(invocation, OPTION_QUICK);
  doctor_run(&report);
  if (is_given(invocation, OPTION_JSON))
    print_json(&report, quick);
  else
    print_table(&report, is_given(invocation, OPTION_VERBOSE), quick);
  int code = check_printed();
  return code ? code : report.native.available ? 0 : 1;
}

extern const struct verb doctor_verb;
const struct verb doctor_verb = {
    .name = "doctor",
    .synopsis = "[OPTION]...",
    .summary = "tell what this machine can do and how to fix the rest",
    .description =
        "Tries every kernel feature, device, setting and tool that matters, and prints "
        "what was found and the exact fix for what is missing, then the back ends and what "
        "each can enforce. Exits with 0 if the "
        "native engine can run here, else with 1.",
    .options = options,
    .run = run,
};
