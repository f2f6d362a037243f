"""Runs commands that nobody has read: Python over libsandbox, with nothing to build.

    from sandbox import Sandbox

    result = Sandbox({"limits": {"memory_mb": 512, "timeout_seconds": 60}}).run("npm test")
    print(result.success, result.exit_code, result.stdout, result.resource_usage)

    with Sandbox().session() as session:
        session.exec(["make"])
        session.exec("make test")

A configuration is a policy as in docs/POLICY.md, as a dict or as YAML text; options of `sandbox run`
are keyword arguments (`memory="512M"`, `rw=["/opt/x"]`, `static=True`).
"""

import ctypes
import dataclasses
import json
import os
import pathlib

__all__ = ["Sandbox", "Session", "Result", "Verdict", "SandboxError", "import_settings", "version"]

# ---- the library ----


def _load():
    """$SANDBOX_LIBRARY, the one installed with this file (PREFIX/lib/python3/dist-packages), or
    the system's."""
    name, named = "libsandbox.so.0", os.environ.get("SANDBOX_LIBRARY")
    above = list(pathlib.Path(__file__).resolve().parents)[2:4]
    installed = [str(path) for folder in above for pattern in (name, f"*/{name}")
                 for path in folder.glob(pattern)]
    problem = None
    for place in [named] if named else [*installed, name]:
        try:
            return ctypes.CDLL(place)
        except OSError as error:
            problem = error
    raise ImportError(f"libsandbox is not installed: {problem}") from problem


_library = _load()
_pointer, _text, _number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
_words = ctypes.POINTER(ctypes.c_char_p)
_event_function = ctypes.CFUNCTYPE(None, _pointer, _text)

# Name: result, parameters. Strings that are ours to free come as plain pointers.
_functions = {
    "sb_version": (_text, []),
    "sb_error_new": (_pointer, []),
    "sb_error_free": (None, [_pointer]),
    "sb_error_code": (_text, [_pointer]),
    "sb_error_message": (_text, [_pointer]),
    "sb_error_hint": (_text, [_pointer]),
    "sb_policy_load": (_pointer, [_text, _pointer]),
    "sb_policy_free": (None, [_pointer]),
    "sb_policy_add_text": (_number, [_pointer, _text, _pointer]),
    "sb_policy_explain": (_pointer, [_pointer, _text, _number]),
    "sb_policy_to_json": (_pointer, [_pointer]),
    "sb_policy_import": (_pointer, [_text, _text, _text, ctypes.POINTER(_pointer), _pointer]),
    "sb_decide": (_pointer, [_pointer, _words, _pointer]),
    "sb_decide_script": (_pointer, [_pointer, _text, _pointer]),
    "sb_verdict_free": (None, [_pointer]),
    "sb_verdict_sandboxed": (_number, [_pointer]),
    "sb_verdict_excluded": (_number, [_pointer]),
    "sb_verdict_refused": (_number, [_pointer]),
    "sb_verdict_needs_approval": (_number, [_pointer]),
    "sb_verdict_reason": (_text, [_pointer, ctypes.c_size_t]),
    "sb_options_new": (_pointer, []),
    "sb_options_free": (None, [_pointer]),
    "sb_options_add": (_number, [_pointer, _text, _text, _pointer]),
    "sb_options_set_policy": (None, [_pointer, _text]),
    "sb_options_set_folder": (None, [_pointer, _text]),
    "sb_options_set_input": (None, [_pointer, _text, ctypes.c_size_t]),
    "sb_options_set_environment": (None, [_pointer, _words]),
    "sb_options_set_cancel_fd": (None, [_pointer, _number]),
    "sb_options_on_event": (None, [_pointer, _event_function, _pointer]),
    "sb_options_set_command": (None, [_pointer, _text]),
    "sb_run": (_pointer, [_pointer, _words, _pointer]),
    "sb_run_script": (_pointer, [_pointer, _text, _pointer]),
    "sb_wrap_command": (_pointer, [_pointer, _text, _words, _pointer]),
    "sb_result_free": (None, [_pointer]),
    "sb_result_exit_code": (_number, [_pointer]),
    "sb_result_stdout": (_pointer, [_pointer, ctypes.POINTER(ctypes.c_size_t)]),
    "sb_result_stderr": (_pointer, [_pointer, ctypes.POINTER(ctypes.c_size_t)]),
    "sb_result_wall_time": (ctypes.c_double, [_pointer]),
    "sb_result_cpu_time": (ctypes.c_double, [_pointer]),
    "sb_result_memory_peak": (ctypes.c_longlong, [_pointer]),
    "sb_result_limit_hit": (_text, [_pointer]),
    "sb_result_backend": (_text, [_pointer]),
    "sb_result_session_id": (_text, [_pointer]),
    "sb_result_warnings": (_text, [_pointer]),
    "sb_result_json": (_text, [_pointer]),
    "sb_session_start": (_pointer, [_pointer, _pointer]),
    "sb_session_open": (_pointer, [_text, _pointer]),
    "sb_session_free": (None, [_pointer]),
    "sb_session_id": (_text, [_pointer]),
    "sb_session_exec": (_pointer, [_pointer, _words, _pointer, _pointer]),
    "sb_session_stats": (_pointer, [_pointer, _pointer]),
    "sb_session_kill": (_number, [_pointer, _number, _pointer]),
    "sb_session_wait": (_number, [_pointer, _number, _pointer]),
    "sb_events_open": (_pointer, [_pointer, _number, _pointer]),
    "sb_events_free": (None, [_pointer]),
    "sb_events_fd": (_number, [_pointer]),
    "sb_events_next": (_pointer, [_pointer, _pointer]),
    "sb_events_send": (_number, [_pointer, _text, _pointer]),
}
for _name, (_result, _parameters) in _functions.items():
    _function = getattr(_library, _name)
    _function.restype, _function.argtypes = _result, _parameters
_free = ctypes.CDLL(None).free
_free.argtypes, _free.restype = [_pointer], None


def version():
    return _library.sb_version().decode()


# ---- values ----


class SandboxError(Exception):
    """What failed before, or instead of, the command; `code` is a stable word, `hint` may be None."""

    def __init__(self, code, message, hint=None):
        super().__init__(message + (f" ({hint})" if hint else ""))
        self.code, self.message, self.hint = code, message, hint


@dataclasses.dataclass
class Result:
    exit_code: int
    stdout_bytes: bytes
    stderr_bytes: bytes
    resource_usage: dict  # wall_time, cpu_time (seconds), memory_peak (bytes); None where not known
    limit_hit: str | None = None
    backend: str | None = None
    session_id: str | None = None
    warnings: str = ""
    raw: dict = dataclasses.field(default_factory=dict)  # everything, as in docs/RESULTS.md

    @property
    def success(self):
        return self.exit_code == 0

    @property
    def stdout(self):
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self):
        return self.stderr_bytes.decode("utf-8", "replace")


@dataclasses.dataclass
class Verdict:
    sandboxed: bool
    excluded: bool
    refused: bool
    needs_approval: bool
    reasons: list


def _encode(text):
    return None if text is None else os.fsencode(text)


def _array(words):
    words = [_encode(word) for word in words]
    return (ctypes.c_char_p * (len(words) + 1))(*words, None)


def _decode(data):
    return None if data is None else data.decode("utf-8", "surrogateescape")


def _taken(pointer):
    """A string of the library that is ours now."""
    try:
        return ctypes.string_at(pointer).decode("utf-8", "surrogateescape")
    finally:
        _free(pointer)


class _Error:
    """The failure object of one call."""

    def __enter__(self):
        self.handle = _library.sb_error_new()
        return self

    def __exit__(self, *_):
        _library.sb_error_free(self.handle)

    def check(self, result):
        """Gives the result back, or raises if it is none."""
        if result is None or (isinstance(result, int) and result == -1):
            raise SandboxError(_decode(_library.sb_error_code(self.handle)),
                               _decode(_library.sb_error_message(self.handle)),
                               _decode(_library.sb_error_hint(self.handle)))
        return result


def _known(value):
    return None if value < 0 else value


def _stream(function, handle):
    length = ctypes.c_size_t()
    data = function(handle, ctypes.byref(length))
    return ctypes.string_at(data, length.value)


def _result(handle):
    try:
        return Result(
            exit_code=_library.sb_result_exit_code(handle),
            stdout_bytes=_stream(_library.sb_result_stdout, handle),
            stderr_bytes=_stream(_library.sb_result_stderr, handle),
            resource_usage={
                "wall_time": _known(_library.sb_result_wall_time(handle)),
                "cpu_time": _known(_library.sb_result_cpu_time(handle)),
                "memory_peak": _known(_library.sb_result_memory_peak(handle)),
            },
            limit_hit=_decode(_library.sb_result_limit_hit(handle)),
            backend=_decode(_library.sb_result_backend(handle)),
            session_id=_decode(_library.sb_result_session_id(handle)),
            warnings=_decode(_library.sb_result_warnings(handle)),
            raw=json.loads(_library.sb_result_json(handle)),
        )
    finally:
        _library.sb_result_free(handle)


def import_settings(file, format=None):
    """Another program's settings as (policy text, what it cannot express)."""
    lost = _pointer()
    with _Error() as error, open(file, "rb") as source:
        policy = error.check(_library.sb_policy_import(
            _encode(format), _encode(str(file)), source.read(), ctypes.byref(lost), error.handle))
        return _taken(policy), _taken(lost.value).splitlines()


# ---- options of one call ----


class _Options:
    def __init__(self, sandbox, folder=None, environment=None, input=None, on_event=None,
                 cancel_fd=None, options=None):
        self.handle = _library.sb_options_new()
        self.callback = None
        self._fill(sandbox, folder, environment, input, cancel_fd)
        self._add({**(sandbox.options if sandbox else {}), **(options or {})})
        if on_event:
            # Kept here: the library calls it while this object lives.
            self.callback = _event_function(lambda _, event: on_event(json.loads(event)))
            _library.sb_options_on_event(self.handle, self.callback, None)

    def _fill(self, sandbox, folder, environment, input, cancel_fd):
        if sandbox:
            _library.sb_options_set_command(self.handle, _encode(sandbox.command))
            if sandbox.policy is not None:
                _library.sb_options_set_policy(self.handle, sandbox.policy.encode())
            folder = folder or sandbox.folder
            environment = sandbox.environment if environment is None else environment
        _library.sb_options_set_folder(self.handle, _encode(folder))
        if environment is not None:
            pairs = [os.fsencode(name) + b"=" + os.fsencode(value)
                     for name, value in environment.items()]
            _library.sb_options_set_environment(self.handle, _array(pairs))
        if input is not None:
            data = input.encode() if isinstance(input, str) else bytes(input)
            _library.sb_options_set_input(self.handle, data, len(data))
        if cancel_fd is not None:
            _library.sb_options_set_cancel_fd(self.handle, cancel_fd)

    def _add(self, options):
        with _Error() as error:
            try:
                for name, value in options.items():
                    self._add_one(error, name.replace("_", "-"), value)
            except SandboxError:
                self.close()
                raise

    def _add_one(self, error, name, value):
        if value is None or value is False:
            return
        for item in value if isinstance(value, (list, tuple)) else [value]:
            text = None if item is True else _encode(str(item))
            error.check(_library.sb_options_add(self.handle, name.encode(), text, error.handle))

    def close(self):
        _library.sb_options_free(self.handle)
        self.handle = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# ---- the sandbox ----


class Sandbox:
    """How to run commands; makes nothing by itself.

    config       a policy: a dict, or YAML or JSON text; over the policy files of the folder
    folder       where commands start, and whose project they are about
    environment  instead of this process's; the policy still chooses what passes
    command      the `sandbox` program to use instead of the installed one
    options      those of `sandbox run`, by keyword
    """

    def __init__(self, config=None, *, folder=None, environment=None, command=None, **options):
        if isinstance(config, dict):
            config = json.dumps({"version": 1, **config})
        self.policy, self.folder = config, folder
        self.environment, self.command, self.options = environment, command, options

    @classmethod
    def from_settings(cls, file, format=None, **more):
        """With another program's settings (.claude/settings.json, dive.yaml, ...). What a policy
        cannot express is in the attribute `lost`."""
        policy, lost = import_settings(file, format)
        sandbox = cls(policy, **more)
        sandbox.lost = lost
        return sandbox

    def run(self, command, *, input=None, on_event=None, cancel_fd=None, **options):
        """Runs a shell string, or a list of words, in a new sandbox and waits for its end."""
        with _Options(self, input=input, on_event=on_event, cancel_fd=cancel_fd,
                      options=options) as call, _Error() as error:
            if isinstance(command, str):
                handle = _library.sb_run_script(call.handle, _encode(command), error.handle)
            else:
                handle = _library.sb_run(call.handle, _array(command), error.handle)
            return _result(error.check(handle))

    def session(self, **options):
        """A session for many commands; use it in a `with` block."""
        with _Options(self, options=options) as call, _Error() as error:
            return Session(error.check(_library.sb_session_start(call.handle, error.handle)))

    def wrap(self, command, backend="bwrap"):
        """What would run the command in another sandbox: argv, env, fds, files."""
        words = ["sh", "-c", command] if isinstance(command, str) else command
        with _Options(self) as call, _Error() as error:
            return json.loads(_taken(error.check(_library.sb_wrap_command(
                call.handle, backend.encode(), _array(words), error.handle))))

    def wrap_command(self, command, backend="bwrap"):
        """The words alone."""
        return self.wrap(command, backend)["argv"]

    def _loaded(self, error):
        handle = error.check(_library.sb_policy_load(_encode(self.folder), error.handle))
        if self.policy is not None and _library.sb_policy_add_text(
                handle, self.policy.encode(), error.handle) < 0:
            _library.sb_policy_free(handle)
            error.check(None)
        return handle

    def decide(self, command):
        """Would it be sandboxed, and should somebody be asked first?"""
        with _Error() as error:
            policy = self._loaded(error)
            try:
                if isinstance(command, str):
                    verdict = _library.sb_decide_script(policy, _encode(command), error.handle)
                else:
                    verdict = _library.sb_decide(policy, _array(command), error.handle)
                return _verdict(error.check(verdict))
            finally:
                _library.sb_policy_free(policy)

    def explain(self, path, write=False):
        """What the policy says about a path, and why."""
        with _Error() as error:
            policy = self._loaded(error)
            try:
                return json.loads(_taken(_library.sb_policy_explain(
                    policy, _encode(str(path)), int(write))))
            finally:
                _library.sb_policy_free(policy)

    def is_available(self):
        """Whether a sandbox can be had here and now."""
        try:
            return self.run(["true"]).backend not in (None, "none")
        except SandboxError:
            return False


def _verdict(handle):
    try:
        reasons = []
        while (reason := _library.sb_verdict_reason(handle, len(reasons))) is not None:
            reasons.append(_decode(reason))
        return Verdict(*(bool(function(handle)) for function in (
            _library.sb_verdict_sandboxed, _library.sb_verdict_excluded,
            _library.sb_verdict_refused, _library.sb_verdict_needs_approval)), reasons)
    finally:
        _library.sb_verdict_free(handle)


class Session:
    """A running session. It ends with the `with` block, `close`, or this process."""

    def __init__(self, handle):
        self._handle = handle

    @classmethod
    def open(cls, session_id):
        """One that somebody else started; closing this object leaves it running."""
        with _Error() as error:
            return cls(error.check(_library.sb_session_open(_encode(session_id), error.handle)))

    @property
    def id(self):
        return _decode(_library.sb_session_id(self._handle))

    def exec(self, command, *, input=None, folder=None, environment=None):
        """Runs a shell string, or a list of words, in it and waits for its end."""
        words = ["sh", "-c", command] if isinstance(command, str) else command
        with _Options(None, folder, environment, input) as call, _Error() as error:
            return _result(error.check(_library.sb_session_exec(
                self._handle, _array(words), call.handle, error.handle)))

    def stats(self):
        with _Error() as error:
            return json.loads(_taken(error.check(_library.sb_session_stats(
                self._handle, error.handle))))

    def events(self, observe=True):
        """What it decides and asks, as dicts. Send {"cmd": "cmd.approve", ...} with `.send()`."""
        with _Error() as error:
            return Events(error.check(_library.sb_events_open(
                self._handle, int(observe), error.handle)))

    def kill(self, now=False):
        with _Error() as error:
            error.check(_library.sb_session_kill(self._handle, int(now), error.handle))

    def wait(self, timeout=None):
        """True once it has ended."""
        milliseconds = -1 if timeout is None else int(timeout * 1000)
        with _Error() as error:
            return bool(error.check(_library.sb_session_wait(
                self._handle, milliseconds, error.handle)))

    def close(self):
        handle, self._handle = self._handle, None
        _library.sb_session_free(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Events:
    """Messages of a session, one by one; ends with the session."""

    def __init__(self, handle):
        self._handle = handle

    def fileno(self):
        return _library.sb_events_fd(self._handle)

    def send(self, command):
        with _Error() as error:
            error.check(_library.sb_events_send(
                self._handle, json.dumps(command).encode(), error.handle))

    def __iter__(self):
        return self

    def __next__(self):
        with _Error() as error:
            text = _library.sb_events_next(self._handle, error.handle)
        if not text:
            raise StopIteration
        return json.loads(_taken(text))

    def close(self):
        handle, self._handle = self._handle, None
        _library.sb_events_free(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
