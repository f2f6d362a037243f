/* Everything that matters on a machine, one row each: what it is, what rests on it, how it is tried
 * and what to do if it is not there. Rows that others rest on come first. */
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/resource.h>

#include "core/cleanup.h"
#include "doctor/calls.h"
#include "doctor/mounts.h"
#include "doctor/probe.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif
#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif

#define NAMESPACE(name, new_flag, sysctl)                                                          \
  .probe = probe_namespace,                                                                        \
  .argument = &(const struct namespace_spec){.flag = (new_flag), .limit = sysctl},                 \
  .fix = "boot a kernel built with CONFIG_" name "=y"
#define MOUNT_CALL(function)                                                                       \
  .probe = probe_mount_call, .argument = &(const struct call_spec) {                               \
    function                                                                                       \
  }
#define CALL(function)                                                                             \
  .probe = probe_call, .argument = &(const struct call_spec) {                                     \
    function                                                                                       \
  }
#define FILESYSTEM(...)                                                                            \
  .probe = probe_mount_filesystem, .argument = &(const struct filesystem_spec) {                   \
    __VA_ARGS__                                                                                    \
  }
#define NOTIFY(...)                                                                                \
  .probe = probe_seccomp_notify, .argument = &(const struct notify_spec) {                         \
    __VA_ARGS__                                                                                    \
  }
#define DEVICE(...)                                                                                \
  .probe = probe_device, .argument = &(const struct device_spec) {                                 \
    __VA_ARGS__                                                                                    \
  }
#define RLIMIT(...)                                                                                \
  .probe = probe_rlimit, .argument = &(const struct rlimit_spec) {                                 \
    __VA_ARGS__                                                                                    \
  }
#define TOOL(...)                                                                                  \
  .argument = &(const struct tool_spec) {                                                          \
    __VA_ARGS__                                                                                    \
  }
#define PACKAGE(name) name, name, name
#define INSTALL(what) "install " what " with the system's package manager"
#define UNMASK(what)                                                                               \
  "start the container with --security-opt systempaths=unconfined (docker) or --security-opt "     \
  "unmask=" what " (podman)"

const struct check doctor_checks[] = {
    /* namespaces */
    {"user-namespaces", "namespaces", "user namespaces", "the native engine as a whole",
     .required = true, .probe = probe_userns, .fix = "boot a kernel built with CONFIG_USER_NS=y"},
    {"mount-namespace", "namespaces", "mount namespace", "the file system view", .required = true,
     NAMESPACE("NAMESPACES", CLONE_NEWNS, "max_mnt_namespaces")},
    {"pid-namespace", "namespaces", "pid namespace", "hiding other processes, clean ending",
     .required = true, NAMESPACE("PID_NS", CLONE_NEWPID, "max_pid_namespaces")},
    {"net-namespace", "namespaces", "network namespace", "cutting the network off",
     .required = true, NAMESPACE("NET_NS", CLONE_NEWNET, "max_net_namespaces")},
    {"ipc-namespace", "namespaces", "ipc namespace", "hiding System V and POSIX queues",
     .required = true, NAMESPACE("IPC_NS", CLONE_NEWIPC, "max_ipc_namespaces")},
    {"uts-namespace", "namespaces", "uts namespace", "an own host name", .required = true,
     NAMESPACE("UTS_NS", CLONE_NEWUTS, "max_uts_namespaces")},
    {"cgroup-namespace", "namespaces", "cgroup namespace", "hiding the host's cgroup paths",
     NAMESPACE("CGROUPS", CLONE_NEWCGROUP, "max_cgroup_namespaces")},
    {"time-namespace", "namespaces", "time namespace", "hiding the host's uptime",
     NAMESPACE("TIME_NS", CLONE_NEWTIME, "max_time_namespaces")},
    {"namespace-limits", "namespaces", "limits on namespaces", "many sessions at a time",
     .probe = probe_namespace_limits, .fix = "sudo sysctl -w user.max_user_namespaces=15000"},

    /* mounts */
    {"open-tree", "mounts", "open_tree", "every bind mount, and grants", .required = true,
     MOUNT_CALL(mounts_try_open_tree), .fix = "boot Linux 5.2 or newer"},
    {"move-mount", "mounts", "move_mount", "every mount, and grants", .required = true,
     MOUNT_CALL(mounts_try_move_mount), .fix = "boot Linux 5.2 or newer"},
    {"mount-setattr", "mounts", "mount_setattr", "read-only trees without a gap", .required = true,
     MOUNT_CALL(mounts_try_mount_setattr), .fix = "boot Linux 5.12 or newer"},
    {"fsopen", "mounts", "fsopen", "private /tmp, /dev, /run", .required = true,
     MOUNT_CALL(mounts_try_fsopen), .fix = "boot Linux 5.2 or newer"},
    {"tmpfs-mount", "mounts", "tmpfs", "private /tmp, /dev, /run", .required = true,
     FILESYSTEM("tmpfs", "size=64k"),
     .fix = "in a container: --security-opt apparmor=unconfined, else CONFIG_TMPFS=y"},
    {"proc-mount", "mounts", "fresh /proc", "a /proc of the session only (else a weaker view)",
     FILESYSTEM("proc", NULL, .namespaces = CLONE_NEWPID, .masked_in_containers = true),
     .fix = UNMASK("/proc/*")},
    {"sysfs-mount", "mounts", "fresh /sys", "a /sys of the session's network only",
     FILESYSTEM("sysfs", NULL, .namespaces = CLONE_NEWNET, .masked_in_containers = true),
     .fix = UNMASK("/sys/*")},
    {"devpts-mount", "mounts", "devpts", "terminals of the session's own",
     FILESYSTEM("devpts", "newinstance,ptmxmode=0666,mode=620"),
     .fix = "boot a kernel built with CONFIG_UNIX98_PTYS=y"},
    {"overlayfs", "mounts", "overlayfs", "--overlay, and review before changes are kept",
     .probe = probe_overlay,
     .fix = "boot Linux 5.11 or newer with CONFIG_OVERLAY_FS (sudo modprobe overlay), and set "
            "TMPDIR to a folder on ext4, xfs, btrfs or tmpfs"},

    /* system calls */
    {"openat2", "system calls", "openat2", "opening paths that cannot be tricked by links",
     .required = true, CALL(calls_try_openat2), .fix = "boot Linux 5.6 or newer"},
    {"close-range", "system calls", "close_range", "no descriptor leaks inside",
     CALL(calls_try_close_range), .fix = "boot Linux 5.9 or newer"},
    {"pidfd-open", "system calls", "pidfd_open", "ending sessions without races",
     CALL(calls_try_pidfd_open), .fix = "boot Linux 5.3 or newer"},
    {"clone3", "system calls", "clone3", "a fast start", CALL(calls_try_clone3),
     .fix = "boot Linux 5.3 or newer"},
    {"clone-into-cgroup", "system calls", "CLONE_INTO_CGROUP", "limits from the first instruction",
     .probe = probe_clone_into_cgroup, .fix = "boot Linux 5.7 or newer"},
    {"statmount", "system calls", "statmount", "listing mounts without parsing",
     CALL(calls_try_statmount), .fix = "boot Linux 6.8 or newer"},
    {"keyring", "system calls", "session keyring", "keeping the user's keys out",
     .probe = probe_keyring,
     .fix = "raise kernel.keys.maxkeys (sudo sysctl -w "
            "kernel.keys.maxkeys=2000)"},

    /* confinement */
    {"seccomp-filter", "confinement", "seccomp filter", "refusing dangerous system calls",
     .required = true, .probe = probe_seccomp_filter,
     .fix = "boot a kernel built with CONFIG_SECCOMP_FILTER=y"},
    {"seccomp-notify", "confinement", "seccomp notification", "questions where FUSE is missing",
     NOTIFY(0), .fix = "boot Linux 5.0 or newer"},
    {"seccomp-addfd-send", "confinement", "seccomp ADDFD_SEND", "\"once\" answers without FUSE",
     NOTIFY(.add_descriptor = true), .fix = "boot Linux 5.14 or newer"},
    {"seccomp-wait-killable", "confinement", "seccomp WAIT_KILLABLE",
     "questions that survive signals", NOTIFY(SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV),
     .fix = "boot Linux 5.19 or newer"},
    {"seccomp-sync-wake-up", "confinement", "seccomp SYNC_WAKE_UP", "fast answers without FUSE",
     NOTIFY(.sync_wake_up = true), .fix = "boot Linux 6.6 or newer"},
    {"landlock", "confinement", "Landlock", "a second wall; the only one without namespaces",
     .probe = probe_landlock, .fix = "boot Linux 6.12 or newer with landlock in lsm="},
    {"no-new-privs", "confinement", "no_new_privs", "setuid tools: firejail, newuidmap",
     .probe = probe_no_new_privs,
     .fix = "start from a shell without it (NoNewPrivileges=no in the systemd unit, "
            "--security-opt no-new-privileges=false in docker)"},
    {"ptrace", "confinement", "reading children (Yama)", "seccomp questions, debuggers inside",
     .probe = probe_ptrace, .fix = "sudo sysctl -w kernel.yama.ptrace_scope=1"},

    /* devices */
    {"dev-fuse", "devices", "/dev/fuse", "the gate at full speed", DEVICE("/dev/fuse", ""),
     .fix = "sudo modprobe fuse; in a container: --device /dev/fuse"},
    {"fuse-mount", "devices", "FUSE in a user namespace", "the gate at full speed",
     .probe = probe_fuse_mount, .fix = "boot Linux 4.18 or newer with CONFIG_FUSE_FS"},
    {"dev-kvm", "devices", "/dev/kvm", "--backend vm at full speed",
     DEVICE("/dev/kvm", " (only booting a guest tells whether it works)"),
     .fix = "sudo modprobe kvm_intel || sudo modprobe kvm_amd; in a container: --device /dev/kvm"},
    {"dev-net-tun", "devices", "/dev/net/tun", "slirp4netns and pasta", DEVICE("/dev/net/tun", ""),
     .fix = "sudo modprobe tun; in a container: --device /dev/net/tun"},
    {"nftables", "devices", "nf_tables", "a filtered network", .probe = probe_nftables,
     .fix = "sudo modprobe -a nf_tables nft_tproxy"},

    /* limits */
    {"cgroup-layout", "limits", "cgroups", "limits on memory, processes and processor time",
     .probe = probe_cgroup_layout, .fix = "boot with systemd.unified_cgroup_hierarchy=1"},
    {"cgroup-delegation", "limits", "writable cgroup",
     "enforced limits (else they are only watched)", .probe = probe_cgroup_delegation,
     .fix = "systemd-run --user --scope -p Delegate=yes sandbox run ..."},
    {"enforcers", "limits", "what holds each limit", "--memory, --pids, --cpus and the others",
     .probe = probe_enforcers,
     .fix = "systemd-run --user --scope -p Delegate=yes sandbox run ..., or run as root"},
    {"systemd", "limits", "systemd manager", "a cgroup of our own without root",
     .probe = probe_systemd,
     .fix = "sudo loginctl enable-linger $USER, then log in again (where systemd runs)"},
    {"rlimit-nofile", "limits", "open files (RLIMIT_NOFILE)", "the gate's open folders",
     RLIMIT(RLIMIT_NOFILE, 1024, "n"), .fix = "ulimit -n 1024"},
    {"rlimit-nproc", "limits", "processes (RLIMIT_NPROC)", "starting anything",
     RLIMIT(RLIMIT_NPROC, 512, "u"), .fix = "ulimit -u 512"},
    {"rlimit-fsize", "limits", "file size (RLIMIT_FSIZE)", "audit logs and overlays",
     RLIMIT(RLIMIT_FSIZE, RLIM_INFINITY, "f"), .fix = "ulimit -f unlimited"},
    {"rlimit-as", "limits", "address space (RLIMIT_AS)", "runtimes that reserve much: Go, Java",
     RLIMIT(RLIMIT_AS, RLIM_INFINITY, "v"), .fix = "ulimit -v unlimited"},

    /* places */
    {"runtime-folder", "places", "runtime folder", "control sockets of the sessions",
     .probe = probe_runtime_folder, .fix = "export XDG_RUNTIME_DIR=/run/user/$(id -u)"},
    {"state-folder", "places", "state folder", "audit logs and kept overlays",
     .probe = probe_state_folder, .fix = "set XDG_STATE_HOME to a writable folder"},
    {"home", "places", "home folder", "policy, caches, toolchains", .probe = probe_home,
     .fix = "set HOME to a folder that exists and is yours"},
    {"container", "places", "inside a container", "understanding the rows above",
     .probe = probe_container, .fix = "nothing to fix"},

    /* tools: the fix here is for machines whose package manager we do not know */
    {"git", "tools", "git", "protecting hooks and configuration of repositories",
     .probe = probe_tool, .fix = INSTALL("git"), TOOL("git", "--version", PACKAGE("git"))},
    {"bwrap", "tools", "bubblewrap", "--backend bwrap", .probe = probe_tool,
     .fix = INSTALL("bubblewrap"), TOOL("bwrap", "--version", PACKAGE("bubblewrap"))},
    {"podman", "tools", "podman", "--backend podman", .probe = probe_tool, .fix = INSTALL("podman"),
     TOOL("podman", "--version", PACKAGE("podman"))},
    {"docker", "tools", "docker", "--backend docker", .probe = probe_docker,
     .fix = INSTALL("docker"), TOOL("docker", "--version", "docker.io", "moby-engine", "docker")},
    {"firejail", "tools", "firejail", "--backend firejail", .probe = probe_firejail,
     .fix = INSTALL("firejail"), TOOL("firejail", "--version", PACKAGE("firejail"))},
    {"nsjail", "tools", "nsjail", "--backend nsjail", .probe = probe_tool,
     .fix = "build it from https://github.com/google/nsjail", TOOL("nsjail", NULL)},
    {"qemu", "tools", "qemu-system", "--backend vm", .probe = probe_qemu,
     .fix = INSTALL("qemu-system"),
     TOOL(NULL, "--version", "qemu-system", "qemu-kvm", "qemu-base")},
    {"slirp4netns", "tools", "slirp4netns", "network.driver: slirp4netns", .probe = probe_driver,
     .fix = INSTALL("slirp4netns"), TOOL("slirp4netns", "--version", PACKAGE("slirp4netns"))},
    {"pasta", "tools", "pasta", "network.driver: pasta", .probe = probe_driver,
     .fix = INSTALL("passt"), TOOL("pasta", "--version", PACKAGE("passt"))},
    {"veth", "tools", "veth (by ip)", "network.driver: veth", .probe = probe_driver,
     .fix = INSTALL("iproute2"), TOOL("ip", "-V", "iproute2", "iproute", "iproute2")},
    {"nft", "tools", "nft", "network.driver: the rules of all but the relay", .probe = probe_tool,
     .fix = INSTALL("nftables"), TOOL("nft", "--version", PACKAGE("nftables"))},
    {"runsc", "tools", "gVisor (runsc)", "the runsc runtime of podman and docker",
     .probe = probe_tool, .fix = "install it as https://gvisor.dev/docs/user_guide/install/ says",
     TOOL("runsc", "--version", .apt = "runsc")},
    {"newuidmap", "tools", "newuidmap", "several users inside (--containers)",
     .probe = probe_newuidmap, .fix = INSTALL("newuidmap"),
     TOOL("newuidmap", NULL, "uidmap", "shadow-utils", "shadow")},
};

const size_t doctor_check_count = ARRAY_SIZE(doctor_checks);
