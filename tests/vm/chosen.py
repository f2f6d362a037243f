"""What another kernel can break: the black-box tests that run in guests. A plugin of pytest.

A guest does a tenth of the work of the machine, and the whole suite would take hours there. What is
pure code, a text, or another program's business is left out; what stands on the kernel is here, with
the reason. Where both kernels would tell the same, each gets a half. `tools/test-vm --all` runs all.
"""

import re

BOTH, OLD, NEW = ("6.1", "6.12"), ("6.1",), ("6.12",)

# File -> (kernels, whose sessions when root starts the tests, tests; () for all of them).
CHOSEN = {
    # cgroup v2: who holds each limit, delegation, what the kernel counts.
    "cli/test_limits.py": (BOTH, "root", (
        "limit_holds_and_is_named", "supervisor_answers_in_a_storm", "processor_share",
        "disk_throughput", "nothing_inside_can_change_them", "idle_session_is_limited_too",
        "daemons_do_not_outlive", "private_inodes", "open_files")),
    # Groups that are killed and swept, figures that are read from them, pids of two namespaces.
    "cli/test_sessions.py": (BOTH, "root", (
        "ps_says_what_runs", "ps_of_one_session_has_pids_inside_and_outside", "kill_terminates_first",
        "kill_kills_what_ignores_it", "kill_reaches_a_stopped_session", "stats_once",
        "next_command_cleans_up_after_a_crash",
        "sessions_of_another_user", "crash_of_a_detached_session", "detach_prints_the_id_and_returns")),
    # Yama, and the rights of who is not dumpable.
    "cli/test_debug.py": (BOTH, "user", (
        "gdb_session", "strace", "strace_attach", "strace_attach_to_a_sibling", "no_debug_strace",
        "no_debug_memory_of_others", "init_cannot_be_traced",
        "monitor_cannot_be_traced_by_the_same_user_outside",
        "other_processes_of_the_user_are_out_of_reach", "no_core_file")),
    # The rows of a machine whose kernel settings, limits and system calls are taken away.
    "cli/test_doctor.py": (OLD, "user", (
        "no_user_namespaces_by_limit", "no_fuse_falls_back_to_seccomp")),
    # Signals, descriptors, clocks and environment: one of each.
    "cli/test_run.py": (NEW, "user", (
        "signals_reach_the_command", "no_inherited_descriptors", "time_offset",
        "five_megabytes_unchanged", "session_id_and_hostname", "umask_and_limits_are_the_callers")),
    # exec into a running session: confinement and descriptors.
    "cli/test_exec.py": (OLD, "user", (
        "confined_exactly_like_the_first_command", "no_descriptor_of_the_supervisor_gets_in",
        "folder_as_descriptor_is_refused", "killed_client_ends_its_command", "terminal_of_its_own")),
    # A sandbox in another: masked /proc, locked mounts, namespaces that may not be made.
    "cli/test_nested.py": (BOTH, "user", (
        "works_and_says_so", "sandbox_in_sandbox_fails_clearly", "inside_bubblewrap",
        "dynamic_mode_in_a_container")),
    # Overlays in a user namespace; mounts below, above and across file systems.
    "cli/test_overlay.py": (BOTH, "user", (
        "apply_gives_what_the_session_saw", "git_folders_go_to_the_overlay_too",
        "nothing_is_lost_when_the_monitor_dies")),
    "cli/test_places.py": (NEW, "user", (
        "mount_inside_the_project", "other_file_system", "overlay", "overlay_of_a_system_folder",
        "read_only_file_system", "linked_worktree", "hidden_in_readable_in_hidden",
        "write_in_read_in_write")),
    # Terminals: sessions, job control, hang-up.
    "cli/test_tty.py": (OLD, "user", (
        "control_c", "control_z_stops_the_sandbox_for_the_outer_shell", "own_terminal", "resize",
        "terminal_closes", "job_control_in_a_shell_inside")),
    # System calls and mounts that a kernel has or has not, and what Landlock of its version holds.
    "escape/test_mounts.py": (OLD, "user", ()),
    "escape/test_surface.py": (BOTH, "user", ("call", "setuid_program", "file_capabilities",
                                              "session_keyring")),
    "escape/test_processes.py": (NEW, "user", (
        "process_of_host", "signal_to_init", "supervisor_killed", "supervisor_invisible",
        "scheduling", "kill_everything", "daemon_ends_with_session", "no_debug",
        "core_handler_of_the_host_is_not_started")),
    "escape/test_proc.py": (NEW, "user", ("read", "write", "private_tmp_stays_inside",
                                          "no_device_node_anywhere")),
    "escape/test_network.py": (BOTH, "user", ("abstract_socket", "host_loopback",
                                              "loopback_works_inside", "route")),
    # Mounts that fall off when the host changes what is below, and who notices.
    "escape/test_host_changes.py": (BOTH, "user", (
        "replaced_secrets", "late_secrets", "folder_of_a_secret_replaced", "protected_files_replaced",
        "keeper_killed")),
    "escape/test_secrets.py": (BOTH, "user", ("secret_at_bind_alias", "home_at_bind_alias")),
    "escape/test_terminal.py": (OLD, "user", ("terminal_injection",)),
    # Death at any moment: how a kernel takes namespaces apart.
    "fault/test_kill.py": (BOTH, "user", (
        "killed_at_any_moment", "monitor_killed_while_the_command_runs", "init_killed",
        "monitor_stopped_then_killed", "little_memory", "few_processes",
        "nothing_left_after_a_failed_start")),
    # FUSE's retries and what seccomp notify of this version can do.
    "gate/test_files.py": (BOTH, "user", (
        "the_call_that_waited_succeeds", "a_denial_holds_in_a_folder_that_is_allowed_later",
        "a_service_that_is_started_again", "a_program_that_ends_while_a_thread_of_it_waits",
        "every_way_gives_what_it_gives_outside",
        "denied_is_denied_in_every_way",
        "writes_are_refused_and_change_nothing", "writes_may_be_asked_for",
        "programs_are_asked_for_with_their_interpreters",
        "a_process_that_dies_takes_its_question_along",
        "secrets_below_an_approved_folder_stay_hidden", "without_the_monitor_nothing_opens",
        "a_32_bit_program_waits_as_well")),
    # Whose memory is waited for, and by whom.
    "gate/test_stalls.py": (BOTH, "user", ()),
    "gate/test_once.py": (BOTH, "user", (
        "once_is_one_call", "once_cannot_be_opened_for_writing", "a_folder_is_listed_once",
        "a_script_runs_once")),
    # Locks that mounting takes, and mounts whose roots are links.
    "gate/test_sockets_of_others.py": (BOTH, "user", ()),
    "gate/test_locks.py": (BOTH, "user", ()),
    "gate/test_watches.py": (BOTH, "user", ()),
    # Calls that a held thread makes for us: registers, signals, mounts by their numbers.
    "gate/test_standing_in.py": (BOTH, "user", ()),
    "gate/test_kept_writes.py": (BOTH, "user", ("revoking_takes_effect_at_once", "secrets_in_it_stay_covered")),
    "gate/test_root.py": (BOTH, "user", ("a_socket_there_is_asked_for", "who_looks_at_a_socket_there")),
    "gate/test_revoking.py": (BOTH, "user", (
        "revoking_takes_effect_for_new_opens",
        "what_was_hidden_in_a_revoked_folder_stays_hidden")),
    "gate/test_notify.py": (BOTH, "user", (
        "many_wait_at_the_same_time", "ways_out_of_a_place_that_was_used",
        "a_second_listener_is_refused_with_a_reason",
        "a_thread_of_a_process_is_asked_for_as_the_process",
        "it_is_taken_where_fuse_cannot_be_opened")),
    # nftables and sockets of another namespace.
    "net/test_filtered.py": (BOTH, "user", (
        "both_families_inside", "answers_are_synthetic_and_go_back", "much_data_both_ways",
        "own_loopback_stays", "questions_by_tcp_to_any_server")),
    "net/test_full.py": (OLD, "user", ("denied_datagrams", "denied_ping", "ping_of_nobody_is_not_answered",
                                       "many_clients_get_their_own_answers")),
    "net/test_faults.py": (NEW, "user", ("relay_is_confined", "relay_killed",
                                         "monitor_killed_takes_the_relay_along")),
}


def folders(kernel):
    return sorted({path.split("/")[0] for path, (kernels, *_) in CHOSEN.items() if kernel in kernels})


def files(kernel, folder):
    return [f"tests/{path}" for path, (kernels, *_) in CHOSEN.items()
            if kernel in kernels and path.startswith(f"{folder}/")]


# ---- the plugin ----


def pytest_addoption(parser):
    parser.addoption("--whose", choices=("root", "user"),
                     help="only sessions of this user, whatever the table says")


def pytest_collection_modifyitems(config, items):
    kept, met = [], set()
    for item in items:
        path = "/".join(item.path.parts[-2:])
        whose, names = CHOSEN[path][1:]
        name = item.originalname.removeprefix("test_")
        if names and name not in names:
            continue
        met.add((path, name))
        if is_of(item.name, config.option.whose or whose):
            kept.append(item)
    collected = {path for path, _ in met}
    gone = [f"tests/{path}: test_{name}" for path in collected for name in CHOSEN[path][2]
            if (path, name) not in met]
    if gone:
        import pytest  # not needed for the table, and perhaps not installed yet
        raise pytest.UsageError("chosen, but not there: " + ", ".join(gone))
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


def is_of(name, whose):
    """A test that names no user belongs to everybody."""
    named = re.findall(r"\b(root|user)\b", name.partition("[")[2])
    return not named or whose in named
