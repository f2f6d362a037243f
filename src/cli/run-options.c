/* The table of `sandbox run`: help, man page, completions and parsing are all made from it. The
 * order is the order of the help: what can be reached, how it is confined, how it is run. */
#include "cli/run-options.h"

const struct option_spec run_options[] = {
    {RUN_RW, "rw", 0, ARGUMENT_REQUIRED, "PATH", "let the command read and write PATH",
     COMPLETE_PATH},
    {RUN_RO, "ro", 0, ARGUMENT_REQUIRED, "PATH", "let the command read PATH", COMPLETE_PATH},
    {RUN_OVERLAY, "overlay", 0, ARGUMENT_REQUIRED, "PATH",
     "let it change a copy of the folder PATH, never the original", COMPLETE_FOLDER},
    {RUN_BLACKLIST, "blacklist", 0, ARGUMENT_REQUIRED, "PATH",
     "hide PATH: never readable, never asked about", COMPLETE_PATH},
    {RUN_UNPROTECT, "unprotect", 0, ARGUMENT_REQUIRED, "NAME",
     "let it change a protected name, such as .git/config", COMPLETE_PATH},
    {RUN_ALLOW_NETWORK, "allow-network", 0, ARGUMENT_OPTIONAL, "HOST,...",
     "allow the network, or only the hosts listed", COMPLETE_NONE},
    {RUN_ENV, "env", 0, ARGUMENT_REQUIRED, "NAME[=VALUE]",
     "pass an environment variable, or set it", COMPLETE_NONE},

    {RUN_MODE, "mode", 0, ARGUMENT_REQUIRED, "MODE",
     "dynamic: ask about what is not allowed; static: never ask", COMPLETE_WORDS, "dynamic static"},
    {RUN_STATIC, "static", 0, ARGUMENT_NONE, NULL, "the same as --mode=static", COMPLETE_NONE},
    {RUN_POLICY, "policy", 0, ARGUMENT_REQUIRED, "FILE",
     "apply one more policy file, over all others", COMPLETE_PATH},
    {RUN_REQUIRE, "require", 0, ARGUMENT_REQUIRED, "LEVEL",
     "what to do if a protection cannot be had: fail, warn or go on", COMPLETE_WORDS,
     "required preferred disabled"},
    {RUN_BACKEND, "backend", 0, ARGUMENT_REQUIRED, "NAME", "what confines the command",
     COMPLETE_WORDS, "auto native landlock bwrap podman docker firejail nsjail vm seatbelt"},
    {RUN_NO_DEBUG, "no-debug", 0, ARGUMENT_NONE, NULL,
     "forbid ptrace: no debugger or strace inside", COMPLETE_NONE},
    {RUN_TIME_OFFSET, "time-offset", 0, ARGUMENT_REQUIRED, "SECONDS",
     "shift the monotonic and boot clocks", COMPLETE_NONE},

    {RUN_COMMAND, "command", 'c', ARGUMENT_REQUIRED, "STRING", "run STRING with the shell",
     COMPLETE_NONE},
    {RUN_CHDIR, "chdir", 'C', ARGUMENT_REQUIRED, "DIR", "start in the folder DIR", COMPLETE_FOLDER},
    {RUN_TTY, "tty", 0, ARGUMENT_REQUIRED, "WHEN", "give the command a terminal of its own",
     COMPLETE_WORDS, "auto always never"},
    {RUN_DRY_RUN, "dry-run", 0, ARGUMENT_NONE, NULL, "show what would be done and stop",
     COMPLETE_NONE},
    {RUN_JSON, "json", 0, ARGUMENT_NONE, NULL, "print the result as JSON", COMPLETE_NONE},
    {RUN_REPORT, "report", 0, ARGUMENT_NONE, NULL,
     "at the end, tell what changed in writable places", COMPLETE_NONE},
    {RUN_TIMING, "timing", 0, ARGUMENT_NONE, NULL, "show how long each step of the start took",
     COMPLETE_NONE},
    {RUN_VERBOSE, "verbose", 'v', ARGUMENT_NONE, NULL, "say more", COMPLETE_NONE},
    {RUN_QUIET, "quiet", 'q', ARGUMENT_NONE, NULL, "say nothing but errors", COMPLETE_NONE},
    {0},
};

const struct verb run_verb = {
    .name = "run",
    .synopsis = "[OPTION]... [--] [COMMAND [ARGUMENT]...]",
    .summary = "run a command in a sandbox",
    .description =
        "Runs COMMAND so that it finds its tools, paths and caches where they always are, but can "
        "read, write and reach only what it was allowed. It may change the project folder, not the "
        "rest of the machine. What is not yet allowed waits for your answer, unless --static is "
        "given. Without COMMAND an interactive shell ($SHELL) is started. Options end at the first "
        "word that is not one.",
    .options = run_options,
    .stop_at_operand = true,
    .operand_completion = COMPLETE_COMMAND,
    .run = run_main,
};
