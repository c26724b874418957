import pytest

from outbox.topology import Binding
from outbox_operator.broker.listings import installations_of
from outbox_operator.broker.snapshot import Mark, ObservedBinding, Snapshot
from outbox_operator.planning.marks import EVERYTHING, Domain, bindings_of_others, sharing_installations

TIER = "outbox.delay_1s"


def binding(
    owner: str | None, installation: str = "", exchange: str = "outbox", queue: str = "mails"
) -> ObservedBinding:
    return ObservedBinding(Binding(exchange, queue, "a"), f"{owner}~", owner, installation)


def broker(*bindings: ObservedBinding) -> Snapshot:
    found: dict[str, tuple[ObservedBinding, ...]] = {}
    for each in bindings:
        found[each.binding.queue] = (*found.get(each.binding.queue, ()), each)
    return Snapshot({}, {}, found, None, installations=installations_of(found))


@pytest.mark.parametrize(
    ("domain", "mark", "is_known"),
    [
        (EVERYTHING, Mark("shop/mail"), True),
        (EVERYTHING, Mark("shop/mail", "theirs"), False),
        (Domain("ours"), Mark("shop/mail", "ours"), True),
        (Domain("ours"), Mark("shop/mail"), True),
        (Domain("ours"), Mark("shop/mail", "theirs"), False),
        (Domain("ours", ("shop",)), Mark("shop/mail", "ours"), True),
        (Domain("ours", ("shop",)), Mark("shopping/mail", "ours"), False),
        (Domain("ours", ("shop",)), Mark("other/mail"), False),
    ],
)
def test_an_operator_knows_the_resources_of_its_installation_and_namespaces(
    domain: Domain, mark: Mark, is_known: bool
) -> None:
    assert domain.has(mark) is is_known


def test_other_installations_are_found_by_what_they_bound_and_by_their_tiers() -> None:
    seen = broker(
        binding("shop/mail", "ours"),
        binding("shop/mail", "second"),
        binding("outbox", "third", exchange=TIER, queue=TIER),
        binding("shop/mail", "elsewhere", exchange="other"),
        binding(None),
    )
    assert sharing_installations("outbox", seen, Domain("ours")) == ("second", "third")
    assert sharing_installations("nowhere", seen, Domain("ours")) == ()


@pytest.mark.parametrize(
    ("bound", "is_of_others"),
    [
        pytest.param(binding("shop/own", "ours"), False, id="a listener of its own"),
        pytest.param(binding("shop/gone", "ours"), False, id="a listener that is gone"),
        pytest.param(binding(None), False, id="by hand"),
        pytest.param(binding("shop/other", "ours"), True, id="a listener of another relay"),
        pytest.param(binding("shop/other", exchange="outbox.dlx"), True, id="its dead letters"),
        pytest.param(binding("shop/other", exchange="elsewhere"), False, id="another exchange"),
        pytest.param(binding("shop/own", "theirs"), True, id="another installation"),
        pytest.param(binding("outbox", "theirs", TIER, TIER), True, id="a tier of another installation"),
        pytest.param(binding("outbox", "ours", TIER, TIER), False, id="a tier of its own"),
    ],
)
def test_what_others_have_bound_to_an_exchange_is_known_by_its_marks(
    bound: ObservedBinding, is_of_others: bool
) -> None:
    found = bindings_of_others("outbox", broker(bound), Domain("ours"), {"shop/other"})
    assert found == ((bound,) if is_of_others else ())
