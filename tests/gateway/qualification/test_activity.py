import pytest

from gateway.qualification.activity import GAUGES

READ = dict(GAUGES)
STATS = {"requests": 9, "finished": 4, "failed": 1, "abandoned": 2}
VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a"} 2.0
vllm:num_requests_running{engine="1",model_name="a"} 1.0
vllm:num_requests_waiting{engine="0",model_name="a"} 7.0
"""


@pytest.mark.parametrize(
    ("path", "shown", "count"),
    [
        ("/slots", [{"is_processing": True}, {"is_processing": False}], 1),
        ("/slots", [{"is_processing": False}], 0),
        ("/slots", [{"id": 0}], None),
        ("/slots", [], None),
        ("/slots", {"error": "no"}, None),
        ("/slots", None, None),
        ("/metrics", VLLM, 3),
        ("/metrics", "llamacpp:requests_processing 1\n", 1),
        ("/metrics", "sglang:num_running_reqs 0\n", 0),
        ("/metrics", "process_open_fds 12\n", None),
        ("/metrics", {}, None),
        ("/metrics", None, None),
        ("/stats", STATS, 2),
        ("/stats", {**STATS, "failed": "1"}, None),
        ("/stats", [], None),
        ("/stats", None, None),
    ],
)
def test_only_a_count_of_work_is_one(path, shown, count):
    assert READ[path](shown) == count
