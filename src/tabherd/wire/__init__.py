"""What travels over HTTP: request and answer structs, shared by the server and the client.

JSON is camelCase, Python snake_case. Requests refuse fields they do not know, so a misspelt option is an error that
names it, never silently ignored. Only what the server honours is listed here.
"""

from .actions import *
from .base import *
from .control import *
from .locks import *
from .logins import *
from .operations import *
from .sessions import *
from .settings import *
from .tasks import *
