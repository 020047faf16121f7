"""The dead-letter queues of a stack for the acts that send their events again."""

import json
from collections import Counter
from types import SimpleNamespace
from typing import Any

FUNCTIONS = ("forward-logs", "task-stopped")
EVENTS = 12


class Queues:
    """Dead-letter queues with ``EVENTS`` events for each function, which accepts them all. What is
    read is hidden until it is shown again.
    """

    def __init__(self) -> None:
        self.messages = {
            name: {f"{name}-{number}": True for number in range(EVENTS)} for name in FUNCTIONS
        }
        self.accepted: Counter[str] = Counter()
        outputs = {
            "ForwardLogsDeadLetterQueueUrl": "forward-logs",
            "ForwardLogsFunctionName": "forward-logs",
            "TaskStoppedDeadLetterQueueUrl": "task-stopped",
            "TaskStoppedFunctionName": "task-stopped",
        }
        named = [{"OutputKey": name, "OutputValue": outputs[name]} for name in outputs]
        stack = {
            "StackName": "task-profiler",
            "StackId": "arn:aws:cloudformation:eu-west-1:123456789012:stack/task-profiler/1",
            "StackStatus": "UPDATE_COMPLETE",
            "Outputs": named,
        }
        self.clients = {
            "cloudformation": SimpleNamespace(describe_stacks=lambda **_: {"Stacks": [stack]}),
            "lambda": SimpleNamespace(invoke=self._accept),
            "sqs": SimpleNamespace(
                get_queue_attributes=self._count,
                receive_message=self.receive,
                delete_message=self._delete,
                change_message_visibility_batch=self._show,
            ),
        }

    def open(self, service: str) -> Any:
        return self.clients[service]

    def _accept(self, **given: Any) -> None:
        self.accepted[json.loads(given["Payload"])["id"]] += 1

    def _count(self, **given: Any) -> dict[str, Any]:
        queue = self.messages[given["QueueUrl"]]
        visible = sum(queue.values())
        counts = {
            "ApproximateNumberOfMessages": str(visible),
            "ApproximateNumberOfMessagesNotVisible": str(len(queue) - visible),
            "VisibilityTimeout": "300",
        }
        return {"Attributes": counts}

    def receive(self, **given: Any) -> dict[str, Any]:
        queue = self.messages[given["QueueUrl"]]
        visible = [name for name, is_visible in queue.items() if is_visible][:10]
        queue.update(dict.fromkeys(visible, False))
        return {
            "Messages": [
                {
                    "MessageId": name,
                    "ReceiptHandle": name,
                    "Body": json.dumps({"id": name}),
                    "Attributes": {"SentTimestamp": "0"},
                }
                for name in visible
            ]
        }

    def _delete(self, **given: Any) -> None:
        self.messages[given["QueueUrl"]].pop(given["ReceiptHandle"], None)

    def _show(self, **given: Any) -> None:
        queue = self.messages[given["QueueUrl"]]
        for entry in given["Entries"]:
            if entry["ReceiptHandle"] in queue:
                queue[entry["ReceiptHandle"]] = True

    def pass_the_timeout(self) -> None:
        for queue in self.messages.values():
            queue.update(dict.fromkeys(queue, True))
