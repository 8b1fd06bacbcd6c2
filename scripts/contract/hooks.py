"""Who the requests of `make test-contract` come from, and what the contract's schemas cannot say of them."""

import itertools
import uuid

import requests
import schemathesis

# They end their session or account, so each request gets a new one.
ENDING = {"changePassword", "deleteMe", "endOtherSessions", "endSession", "logout"}
PASSWORD = "correct horse"  # as in the examples of the contract

numbers = itertools.count()


def register(base_url):
    name = f"tester-{uuid.uuid4().hex[:16]}"  # new to a server that was attacked before, too
    account = {"username": name, "email": f"{name}@example.com", "password": PASSWORD}
    answer = requests.post(f"{base_url}/v1/auth/register", json=account, timeout=10)
    answer.raise_for_status()
    return answer.json()["token"]


@schemathesis.auth(refresh_interval=None)
class Account:
    """Takes turns: two users, each the owner of what the other one may not touch, and nobody where that is allowed."""

    users = []
    turns = itertools.count()

    def get(self, case, context):
        operation = context.operation
        base_url = operation.base_url.rstrip("/")
        if operation.definition.raw["operationId"] in ENDING:
            return register(base_url)
        while len(self.users) < 2:
            self.users.append(register(base_url))
        if case.meta is not None and case.meta.phase.name == "stateful":
            return self.users[0]  # a sequence is one user's
        turn = next(self.turns)
        if {} in operation.definition.raw["security"] and turn % 3 == 0:
            return None
        return self.users[turn % 2]

    def set(self, case, data, context):
        headers = dict(case.headers or {})
        if data is not None:
            headers["Authorization"] = f"Bearer {data}"
        if headers.get("Idempotency-Key"):  # the same one for every request would be refused
            headers["Idempotency-Key"] = f"{headers['Idempotency-Key'][:200]}-{next(numbers)}"
        case.headers = headers


@schemathesis.hook
def map_body(context, body):
    """1.0 is an integer to JSON Schema, but to few programs."""
    return whole(body)


def whole(value):
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [whole(item) for item in value]
    if isinstance(value, dict):
        return {name: whole(item) for name, item in value.items()}
    return value
