/* sandbox wrap: the command line of another program that would run a command as this policy says.
 */
#include "cli/cli.h"
#include "cli/run-options.h"

static const struct option_spec options[] = {
    {RUN_BACKEND, "backend", 0, ARGUMENT_REQUIRED, "NAME", "the program that confines the command",
     COMPLETE_WORDS, "landlock bwrap podman docker firejail nsjail vm seatbelt"},
    {RUN_JSON, "json", 0, ARGUMENT_NONE, NULL, "print argv, env, fds and files as JSON",
     COMPLETE_NONE},
    {RUN_WEAKEN, "weaken", 0, ARGUMENT_NONE, NULL,
     "accept what the back end cannot enforce, after a warning", COMPLETE_NONE},
    {RUN_IMAGE, "image", 0, ARGUMENT_REQUIRED, "NAME", "image for podman and docker",
     COMPLETE_NONE},
    {RUN_RW, "rw", 0, ARGUMENT_REQUIRED, "PATH", "let the command read and write PATH",
     COMPLETE_PATH},
    {RUN_RO, "ro", 0, ARGUMENT_REQUIRED, "PATH", "let the command read PATH", COMPLETE_PATH},
    {RUN_BLACKLIST, "blacklist", 0, ARGUMENT_REQUIRED, "PATH", "hide PATH", COMPLETE_PATH},
    {RUN_UNPROTECT, "unprotect", 0, ARGUMENT_REQUIRED, "NAME",
     "let it change a protected name, such as .git/config", COMPLETE_PATH},
    {RUN_ALLOW_NETWORK, "allow-network", 0, ARGUMENT_OPTIONAL, "HOST,...",
     "allow the network, or only the hosts listed", COMPLETE_NONE},
    {RUN_ENV, "env", 0, ARGUMENT_REQUIRED, "NAME[=VALUE]",
     "pass an environment variable, or set it", COMPLETE_NONE},
    {RUN_POLICY, "policy", 0, ARGUMENT_REQUIRED, "FILE",
     "apply one more policy file, over all others", COMPLETE_PATH},
    {RUN_STATIC, "static", 0, ARGUMENT_NONE, NULL, "never ask: as for the back ends anyway",
     COMPLETE_NONE},
    {RUN_NO_DEBUG, "no-debug", 0, ARGUMENT_NONE, NULL, "forbid ptrace inside", COMPLETE_NONE},
    {RUN_MEMORY, "memory", 0, ARGUMENT_REQUIRED, "SIZE", "limit memory: 512M", COMPLETE_NONE},
    {RUN_CPUS, "cpus", 0, ARGUMENT_REQUIRED, "NUMBER", "limit processors: 0.5", COMPLETE_NONE},
    {RUN_PIDS, "pids", 0, ARGUMENT_REQUIRED, "NUMBER", "limit processes and threads: 50",
     COMPLETE_NONE},
    {RUN_OPEN_FILES, "open-files", 0, ARGUMENT_REQUIRED, "NUMBER",
     "limit open files of each process", COMPLETE_NONE},
    {RUN_CHDIR, "chdir", 'C', ARGUMENT_REQUIRED, "DIR", "start in the folder DIR", COMPLETE_FOLDER},
    {RUN_COMMAND, "command", 'c', ARGUMENT_REQUIRED, "STRING", "run STRING with the shell",
     COMPLETE_NONE},
    {RUN_TTY, "tty", 0, ARGUMENT_REQUIRED, "WHEN", "arrange for a terminal", COMPLETE_WORDS,
     "auto always never"},
    {0},
};

const struct verb wrap_verb = {
    .name = "wrap",
    .synopsis = "--backend NAME [OPTION]... [--] COMMAND [ARGUMENT]...",
    .summary = "print the command line that would run a command in another sandbox",
    .description =
        "Prints the words, quoted for bash, with which the program of the back end runs COMMAND as "
        "the policy says; nothing is started. With --json: argv, env, fds (descriptors to open, "
        "with their content), files to make, and end_argv, which removes them again. Limits that only a cgroup can hold are refused, since "
        "nobody would hold them.",
    .options = options,
    .stop_at_operand = true,
    .operand_completion = COMPLETE_COMMAND,
    .run = run_wrap,
};
