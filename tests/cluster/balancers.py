"""Plain load balancers that send every request to the next node, with the shortest configuration that does so."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx

from .rig import until

# Where `tools/setup` puts them, and where a distribution does.
PLACES = (Path(__file__).parents[2] / ".setup" / "balancers" / "bin", Path("/usr/sbin"), Path("/usr/bin"))
STOP_LIMIT_S = 60

HAPROXY = """
global
    maxconn 500
defaults
    mode http
    timeout connect 60s
    timeout client 120s
    timeout server 120s
    timeout tunnel 120s
frontend door
    bind 127.0.0.1:{port}
    default_backend nodes
backend nodes
    balance roundrobin
    server a 127.0.0.1:{nodes[0]}
    server b 127.0.0.1:{nodes[1]}
"""

NGINX = """
daemon off;
worker_processes 1;
pid {directory}/nginx.pid;
error_log {directory}/nginx.log;
events {{ worker_connections 500; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    client_max_body_size 0;
    map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
    upstream nodes {{ server 127.0.0.1:{nodes[0]}; server 127.0.0.1:{nodes[1]}; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://nodes;
            proxy_http_version 1.1;
            proxy_set_header Host $http_host;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $connection_upgrade;
            proxy_buffering off;
            proxy_request_buffering off;
            proxy_read_timeout 120s;
        }}
    }}
}}
"""


@contextmanager
def balanced(kind: str, node_ports: list[int], directory: Path) -> Iterator[str]:
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    text = {"haproxy": HAPROXY, "nginx": NGINX}[kind].format(port=port, nodes=node_ports, directory=directory)
    settings = directory / f"{kind}.conf"
    settings.write_text(text.lstrip())
    program = shutil.which(kind, path=":".join(map(str, PLACES)))
    assert program is not None, f"{kind} is missing: run tools/setup dev"
    words = {"haproxy": ["-db", "-f", str(settings)], "nginx": ["-e", f"{directory}/nginx.log", "-c", str(settings)]}
    process = subprocess.Popen([program, *words[kind]])
    try:
        url = f"http://127.0.0.1:{port}"
        until(lambda: is_open(url))
        yield url
    finally:
        process.terminate()
        process.wait(STOP_LIMIT_S)


def is_open(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").status_code == 200
    except httpx.HTTPError:
        return False
