from typing import Any

from outbox_operator.children.applying import Apply, replicas_handover, to_apply, without_bulk
from outbox_operator.children.deployment import DEFAULT_IMAGE, VERSION, deployment
from outbox_operator.children.names import FIELD_MANAGER, REPLICAS_MANAGER
from outbox_operator.children.workload import relay_workload
from outbox_operator.resources import OutboxRelay
from tests.operator.manifests import RELAY, Manifest, changed


def _desired(changes: dict[str, Any] | None = None, image: str = "relay:1", number: int = 1) -> Manifest:
    relay = OutboxRelay.model_validate(changed(RELAY, {".metadata.uid": "u1", **(changes or {})}))
    return deployment(relay_workload(relay, image=image, secret_name=f"shop-{number}", has_ca=False))


def _live(desired: Manifest, changes: dict[str, Any] | None = None, said_by: str = FIELD_MANAGER) -> Manifest:
    """As the server has it once `desired` was applied, and as others changed it."""
    stored = changed(desired, {".metadata.uid": "d1", ".spec.progressDeadlineSeconds": 600})
    entry = {"manager": said_by, "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    stored["metadata"]["managedFields"] = [
        {"manager": FIELD_MANAGER, "fieldsV1": {"f:spec": {"f:template": {}}}},
        entry,
    ]
    return changed(stored, changes or {})


def _of_version(live: Manifest, version: str) -> Manifest:
    live["metadata"]["annotations"][VERSION] = version
    return live


def _with_container(manifest: Manifest, **fields: Any) -> Manifest:
    copy = changed(manifest, {})
    copy["spec"]["template"]["spec"]["containers"][0].update(fields)
    return copy


def _without_replicas(manifest: Manifest) -> Manifest:
    copy = changed(manifest, {})
    del copy["spec"]["replicas"]
    return copy


def _image(manifest: Manifest) -> str:
    image: str = manifest["spec"]["template"]["spec"]["containers"][0]["image"]
    return image


def test_what_is_missing_is_applied() -> None:
    assert to_apply(_desired(), None) == (Apply(_desired()),)


def test_what_is_as_it_should_be_is_not() -> None:
    assert to_apply(_desired(), _live(_desired())) == ()


def test_what_a_list_gives_without_its_kind_is_compared_all_the_same() -> None:
    live = {part: value for part, value in _live(_desired()).items() if part not in ("apiVersion", "kind")}
    assert to_apply(_desired(), live) == ()


def test_a_pod_template_that_was_edited_by_hand_is_put_right() -> None:
    live = _with_container(_live(_desired()), command=["sleep", "1000"])
    assert to_apply(_desired(), live) == (Apply(_desired()),)


def test_a_label_that_is_missing_is_put_back_and_a_foreign_one_is_none_of_our_business() -> None:
    live = _live(_desired())
    live["metadata"]["labels"]["team"] = "shop"
    assert to_apply(_desired(), live) == ()
    del live["metadata"]["labels"]["app.kubernetes.io/managed-by"]
    assert to_apply(_desired(), live) == (Apply(_desired()),)


def test_something_that_is_no_longer_asked_for_is_removed() -> None:
    before = _desired({"template.nodeSelector": {"disk": "ssd"}})
    assert to_apply(_desired(), _live(before)) == (Apply(_desired()),)


def test_an_upgrade_of_the_operator_changes_nothing() -> None:
    earlier = _of_version(_with_container(_live(_desired()), resources={}, lifecycle={}), "0")
    assert to_apply(_desired(), earlier) == ()
    # And back again.
    assert to_apply(_desired(), _of_version(earlier, "99")) == ()


def test_a_new_default_image_restarts_nobody() -> None:
    assert to_apply(_desired(image="relay:2"), _live(_desired(image="relay:1"))) == ()


def test_a_default_image_that_was_changed_by_hand_is_the_one_of_before_again() -> None:
    live = _with_container(_live(_desired(image="relay:1")), image="relay:mine")
    [apply] = to_apply(_desired(image="relay:2"), live)
    assert _image(apply.manifest) == "relay:1"
    assert apply.manifest["metadata"]["annotations"][DEFAULT_IMAGE] == "relay:1"


def test_a_changed_spec_brings_everything_of_the_new_operator() -> None:
    earlier = _of_version(_live(_desired(image="relay:1")), "0")
    desired = _desired({"batchSize": 7}, image="relay:2")
    assert to_apply(desired, earlier) == (Apply(desired),)
    assert _image(desired) == "relay:2"


def test_a_changed_secret_brings_everything_of_the_new_operator() -> None:
    desired = _desired(number=2, image="relay:2")
    assert to_apply(desired, _of_version(_live(_desired()), "0")) == (Apply(desired),)


def test_an_image_that_is_no_longer_named_becomes_the_operators() -> None:
    desired = _desired(image="relay:2")
    assert to_apply(desired, _live(_desired({"image": "mine:1"}))) == (Apply(desired),)


def test_replicas_that_were_changed_by_hand_are_put_right() -> None:
    assert to_apply(_desired({"replicas": 2}), _live(_desired({"replicas": 5}))) == (
        Apply(_desired({"replicas": 2})),
    )


def test_after_an_upgrade_scaling_leaves_the_pods_as_they_are() -> None:
    earlier = _of_version(_live(_desired()), "0")
    [apply] = to_apply(_desired({"replicas": 4}), earlier)
    assert (apply.manager, apply.force) == (REPLICAS_MANAGER, True)
    assert apply.manifest == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "shop-relay", "namespace": "default", "uid": "d1"},
        "spec": {"replicas": 4},
    }


def test_after_an_upgrade_what_is_noted_is_written_without_the_pods() -> None:
    note = {"metadata": {**_desired()["metadata"]}}
    note["metadata"]["annotations"] = {**_desired()["metadata"]["annotations"], "outbox.dev/note": "new"}
    desired = {**_desired(), **note}
    earlier = _of_version(_live(_desired()), "0")
    [apply] = to_apply(desired, earlier)
    assert apply.manager == REPLICAS_MANAGER
    assert apply.manifest["metadata"]["annotations"] == {"outbox.dev/note": "new"}
    # With the replicas, which are ours to say: in this name they are reset where they are not said again.
    assert apply.manifest["spec"] == {"replicas": 1}
    earlier["metadata"]["annotations"]["outbox.dev/note"] = "new"
    assert to_apply(desired, earlier) == ()


def test_after_an_upgrade_what_is_noted_leaves_a_scalers_replicas_alone() -> None:
    desired = _without_replicas(_desired())
    desired["metadata"]["annotations"]["outbox.dev/note"] = "new"
    scaled = _of_version(_live(_desired(), said_by="kube-controller-manager"), "0")
    handed_over = _of_version(_live(_desired({"replicas": 3}), said_by=REPLICAS_MANAGER), "0")
    assert "spec" not in to_apply(desired, scaled)[0].manifest
    assert to_apply(desired, handed_over)[0].manifest["spec"] == {"replicas": 3}


def test_a_handover_keeps_what_is_noted() -> None:
    live = _live(_desired({"replicas": 3}))
    live["metadata"]["annotations"]["outbox.dev/note"] = "old"
    handover = replicas_handover(live)
    assert handover is not None
    assert handover.manifest["metadata"]["annotations"] == {"outbox.dev/note": "old"}


def test_replicas_are_handed_over_before_we_stop_to_say_them() -> None:
    desired = _without_replicas(_desired())
    handover, apply = to_apply(desired, _live(_desired({"replicas": 3})))
    assert (handover.manager, handover.force) == (REPLICAS_MANAGER, False)
    assert handover.manifest["spec"] == {"replicas": 3}
    assert apply == Apply(desired)


def test_replicas_that_a_scaler_says_are_left_alone() -> None:
    desired = _without_replicas(_desired())
    live = _live(_desired(), {".spec.replicas": 9}, said_by="kube-controller-manager")
    assert to_apply(desired, live) == ()
    # Also where something else is applied.
    assert to_apply(desired, _with_container(live, command=["x"])) == (Apply(desired),)


def test_where_nobody_knows_who_says_the_replicas_they_are_kept() -> None:
    live = _live(_with_container(_without_replicas(_desired()), command=["x"]), {".spec.replicas": 3})
    live["metadata"]["managedFields"] = []
    handover, _ = to_apply(_without_replicas(_desired()), live)
    assert handover == replicas_handover(live)


def test_replicas_come_back_to_us_from_a_scaler() -> None:
    live = _live(_desired(), {".spec.replicas": 9}, said_by="kube-controller-manager")
    assert to_apply(_desired({"replicas": 2}), live) == (Apply(_desired({"replicas": 2})),)


def test_what_is_kept_of_a_live_object_decides_the_same() -> None:
    live = _live(_desired({"replicas": 3}))
    kept = without_bulk(live)
    assert kept["metadata"]["managedFields"] == [
        {"manager": FIELD_MANAGER, "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    ]
    for desired in (_desired(), _desired({"replicas": 3}), _without_replicas(_desired())):
        assert to_apply(desired, kept) == to_apply(desired, live)
