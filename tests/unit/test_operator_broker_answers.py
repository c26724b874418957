import pytest

from outbox.topology import Exchange, Queue
from outbox_operator.broker import calls
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.broker.actions import (
    MakeExchange,
    MakeQueue,
    MakeUser,
    Permissions,
    RemoveExchange,
    RemoveQueue,
)
from outbox_operator.broker.answers import not_empty, problem_of
from outbox_operator.broker.calls import WHOAMI, Call

URL = "http://rabbitmq:15672"
ACCESS = BrokerAccess("rabbitmq", 5672, False, "shop", "anna", "hush", URL)
LIST = calls.listings("shop")[1]
[MAKE] = calls.calls_of(MakeQueue(Queue("mails", ())), "shop")
[MAKE_EXCHANGE] = calls.calls_of(MakeExchange(Exchange("outbox", "topic")), "shop")
[REMOVE] = calls.calls_of(RemoveQueue("mails", if_empty=False), "shop")
[REMOVE_EMPTY] = calls.calls_of(RemoveQueue("mails", if_empty=True), "shop")
[REMOVE_UNUSED] = calls.calls_of(RemoveExchange("outbox", if_unused=True), "shop")
MAKE_USER = calls.calls_of(MakeUser("u", "hush", Permissions("", "", "")), "shop")[0]


def may_not(reason: str) -> dict[str, str]:
    return {"error": "not_authorised", "reason": reason}


WHERE = f"vhost 'shop' of {URL}"
NOT_THE_API = "is it the management API? Set spec.broker.managementUrl"

PROBLEMS: list[tuple[str, Call, int, object, str, str]] = [
    (
        "a wrong password in 3.x",
        LIST,
        401,
        {"error": "not_authorized", "reason": "Login failed"},
        "AuthenticationFailed",
        f'user "anna" is refused by {URL} (Login failed): the name or the password is wrong; '
        "correct the Secret",
    ),
    (
        "a wrong password in 4.x",
        WHOAMI,
        401,
        {"error": "not_authorized", "reason": "Not_Authorized"},
        "AuthenticationFailed",
        f'user "anna" is refused by {URL} (Not_Authorized): the name or the password is wrong; '
        "correct the Secret",
    ),
    (
        "a 401 without words",
        LIST,
        401,
        None,
        "AuthenticationFailed",
        f'user "anna" is refused by {URL} (unauthorized): the name or the password is wrong; '
        "correct the Secret",
    ),
    (
        "no tag",
        WHOAMI,
        401,
        may_not("Not management user"),
        "PermissionDenied",
        f'user "anna" may not use the management API of {URL}: give it the tag management, or administrator '
        "to have a broker user for each resource (rabbitmqctl set_user_tags)",
    ),
    (
        "guest from afar",
        WHOAMI,
        401,
        may_not("User can only log in via localhost"),
        "PermissionDenied",
        'user "anna" may only log in via localhost of the broker; make another user for the operator',
    ),
    (
        "no permission in the vhost",
        LIST,
        401,
        may_not("User not authorised to access virtual host"),
        "PermissionDenied",
        'user "anna" may not enter vhost "shop": give it permissions there (rabbitmqctl set_permissions)',
    ),
    (
        "no permission to configure",
        MAKE,
        401,
        may_not("Access refused."),
        "PermissionDenied",
        'user "anna" may not make queue "mails" in vhost "shop" (Access refused.): give it the configure, '
        "write and read permissions there (rabbitmqctl set_permissions)",
    ),
    (
        "no administrator",
        MAKE_USER,
        401,
        may_not("Not administrator user"),
        "PermissionDenied",
        'user "anna" may not make user "u": give it the tag administrator (rabbitmqctl set_user_tags)',
    ),
    (
        "a proxy that forbids",
        LIST,
        403,
        None,
        "PermissionDenied",
        'user "anna" may not list the queues in vhost "shop" (forbidden): give it the configure, '
        "write and read permissions there (rabbitmqctl set_permissions)",
    ),
    (
        "no vhost to list",
        LIST,
        404,
        {"error": "Object Not Found", "reason": "Not Found"},
        "VhostMissing",
        f'vhost "shop" does not exist on {URL}; make it (rabbitmqctl add_vhost), or correct '
        "spec.broker.vhost or the Secret",
    ),
    (
        "a vhost that RabbitMQ 4.3 hides",
        LIST,
        404,
        {"error": "not_found", "reason": "Not Found"},
        "PermissionDenied",
        'user "anna" may not enter vhost "shop": give it permissions there (rabbitmqctl set_permissions)',
    ),
    (
        "no vhost to make a queue in",
        MAKE,
        404,
        {"error": "not_found", "reason": "vhost_not_found"},
        "VhostMissing",
        f'vhost "shop" does not exist on {URL}; make it (rabbitmqctl add_vhost), or correct '
        "spec.broker.vhost or the Secret",
    ),
    ("another website", LIST, 404, None, "Unreachable", f"{URL}: it answers 404; {NOT_THE_API}"),
    (
        "another API",
        WHOAMI,
        404,
        {"error": "Object Not Found", "reason": "Not Found"},
        "Unreachable",
        f"{URL}: it answers 404; {NOT_THE_API}",
    ),
    ("a redirect", WHOAMI, 301, None, "Unreachable", f"{URL}: it answers 301; {NOT_THE_API}"),
    (
        "a proxy without a broker",
        LIST,
        503,
        None,
        "Unreachable",
        f"{URL} fails with 503; look at the broker's log",
    ),
    (
        "a broker that fails",
        LIST,
        500,
        {"error": "Internal Server Error", "reason": "badmatch"},
        "Unreachable",
        f"{URL} fails with 500 badmatch; look at the broker's log",
    ),
    (
        "other arguments",
        MAKE,
        400,
        {"error": "bad_request", "reason": "inequivalent arg 'x-max-length' for queue 'mails'"},
        "Refused",
        f"{WHERE}: could not make queue \"mails\": inequivalent arg 'x-max-length' for queue 'mails'",
    ),
    (
        "a broker that fails to make something",
        MAKE_EXCHANGE,
        500,
        None,
        "Refused",
        f'{WHERE}: could not make exchange "outbox": it answers 500; look at the broker\'s log',
    ),
    (
        "a queue that is not empty",
        REMOVE_EMPTY,
        400,
        {"error": "bad_request", "reason": "queue 'mails' in vhost 'shop' not empty"},
        "NotEmpty",
        f"{WHERE}: could not delete queue \"mails\": queue 'mails' in vhost 'shop' not empty",
    ),
    (
        "an exchange that is bound",
        REMOVE_UNUSED,
        400,
        {"error": "bad_request", "reason": "exchange 'outbox' in vhost 'shop' in use"},
        "InUse",
        f"{WHERE}: could not delete exchange \"outbox\": exchange 'outbox' in vhost 'shop' in use",
    ),
]


@pytest.mark.parametrize(
    ("call", "status", "said", "reason", "message"),
    [each[1:] for each in PROBLEMS],
    ids=[each[0] for each in PROBLEMS],
)
def test_an_answer_and_what_is_wrong(
    call: Call, status: int, said: object, reason: str, message: str
) -> None:
    problem = problem_of(call, status, said, ACCESS)
    assert problem is not None
    assert (problem.reason, problem.message) == (reason, message)


@pytest.mark.parametrize(
    ("call", "status"), [(LIST, 200), (MAKE, 201), (MAKE, 204), (REMOVE, 204), (REMOVE, 404)]
)
def test_what_is_done_or_gone_already_is_well(call: Call, status: int) -> None:
    assert problem_of(call, status, None, ACCESS) is None


@pytest.mark.parametrize(("messages", "words"), [(1, "1 message;"), (12, "12 messages;"), (0, "messages;")])
def test_a_queue_that_is_not_empty_says_how_many_it_has(messages: int, words: str) -> None:
    problem = not_empty(ACCESS, "mails", messages)
    assert problem.message.startswith(f'{WHERE}: queue "mails" has {words}')
