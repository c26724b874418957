import asyncio, logging
from tests.operator.test_cluster_watching import _watching, watcher
async def test_x(watcher, namespace, caplog):
    caplog.set_level(logging.DEBUG)
    async with _watching(watcher.kubeconfig, [namespace]) as watch:
        watch.running.cancel()
        await asyncio.wait([watch.running])
    print([ (r.relativeCreated, r.name, r.getMessage()) for r in caplog.records if 'ung' in r.getMessage()])
    assert 0
