"""An OpenID provider over HTTPS on loopback: university.py CERTIFICATE KEY."""

import sys

from oidc_provider_mock import app
from werkzeug.serving import make_server

place = tuple(sys.argv[1:3])
server = make_server("127.0.0.1", 0, app(require_nonce=True), threaded=True, ssl_context=place)
print(f"listening on https://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
