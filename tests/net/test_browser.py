"""A development server inside, a person's browser outside: `--publish` as it is meant. The browser is
a real one, in the tests' own network, which leads nowhere."""

import json
import secrets
import socket

import pytest

import sessions

PAGE = """<!doctype html><title>inside</title><link rel="stylesheet" href="/style.css">
<p id="said">no script</p><img id="dot" src="/dot.svg"><script src="/app.js"></script>
"""
SCRIPT = """window.onload = () => {
  const request = new XMLHttpRequest();
  request.open("GET", "/data.json", false);
  request.send();
  const width = document.getElementById("dot").naturalWidth;
  const colour = getComputedStyle(document.body).backgroundColor;
  document.getElementById("said").textContent =
    [JSON.parse(request.responseText).token, width, colour].join(" ");
};
"""
FILES = {"index.html": PAGE, "app.js": SCRIPT, "style.css": "body { background: rgb(1, 2, 3) }",
         "dot.svg": '<svg xmlns="http://www.w3.org/2000/svg" width="7" height="7"/>'}
# Of its own accord it would ask for updates, accounts and a good deal more. Its own sandbox does not
# run as root, nor in a container; the page is ours.
BROWSER = ["chromium", "--headless", "--dump-dom", "--timeout=20000", "--no-sandbox", "--disable-gpu",
           "--no-first-run", "--no-default-browser-check", "--disable-background-networking",
           "--disable-sync", "--disable-component-update", "--disable-breakpad",
           "--disable-dev-shm-usage", "--no-proxy-server",
           "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]


def browse(net, url):
    """The page as it is when its scripts have run. Whatever the browser writes is in one folder."""
    folder = net.home("browser")
    net.identity.folder(folder, 0o700)
    places = dict.fromkeys(["HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "TMPDIR"], folder)
    return net.plain([*BROWSER, f"--user-data-dir={folder}/profile", url], env=places, timeout=60)


def is_open(port):
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as client:
            client.sendall(b"HEAD / HTTP/1.0\r\n\r\n")
            return client.recv(100).startswith(b"HTTP/")
    except OSError:
        return False


@pytest.mark.works
def test_published_server_in_a_browser(net):
    """The page, its script, its style, its picture and what the script asks for."""
    token = secrets.token_hex(8)
    for name, text in {**FILES, "data.json": json.dumps({"token": token})}.items():
        net.identity.file(net.path("site", name), text)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serve = ["/usr/bin/python3", "-m", "http.server", "--protocol", "HTTP/1.1", "--bind", "127.0.0.1",
             "--directory", net.path("site"), "8000"]
    with sessions.running(net, serve, "--publish", f"{port}:8000"):
        assert sessions.eventually(lambda: is_open(port), 20), "the server does not listen"
        result = browse(net, f"http://127.0.0.1:{port}/")
    assert f'<p id="said">{token} 7 rgb(1, 2, 3)</p>' in result.stdout, result
