"""Operations of the native protocol by number. A number never changes, and a retired one is never used again."""

from __future__ import annotations

from enum import IntEnum


class Operation(IntEnum):
    """Operations with a form of their own. All others are calls (``CALLS``)."""

    HELLO = 1
    PING = 2
    CANCEL = 3
    CREDIT = 4
    PUBLISH = 16
    READ = 17
    SUBSCRIBE = 18


CALLS: dict[int, str] = {
    0x100: "Topics.CreateTopic",
    0x101: "Topics.ListTopics",
    0x102: "Topics.DescribeTopic",
    0x103: "Topics.ChangeTopic",
    0x104: "Topics.DeleteTopic",
    0x105: "Topics.PurgeTopic",
    0x120: "Metadata.DescribeCluster",
    0x121: "Metadata.FindOffset",
    0x140: "Groups.Join",
    0x141: "Groups.Heartbeat",
    0x142: "Groups.Leave",
    0x143: "Groups.Poll",
    0x144: "Groups.Settle",
    0x145: "Groups.CommitOffsets",
    0x146: "Groups.FetchOffsets",
    0x147: "Groups.ResetOffsets",
    0x148: "Groups.ListGroups",
    0x149: "Groups.DescribeGroup",
    0x14A: "Groups.PeekGroup",
    0x14B: "Groups.ConfigureGroup",
    0x14C: "Groups.DeleteGroup",
    0x14D: "Groups.ReliabilityStats",
    0x14E: "Groups.ListDeadLetters",
    0x14F: "Groups.Redrive",
    0x150: "Groups.LaneStats",
    0x160: "Delays.ListDelayed",
    0x161: "Delays.GetDelayed",
    0x162: "Delays.CancelDelayed",
    0x163: "Delays.RescheduleDelayed",
    0x164: "Delays.DelayStats",
    0x180: "Schemas.RegisterSchema",
    0x181: "Schemas.GetSchema",
    0x182: "Schemas.GetSchemaVersion",
    0x183: "Schemas.FindSchema",
    0x184: "Schemas.ListSubjects",
    0x185: "Schemas.ListSchemaVersions",
    0x186: "Schemas.CheckCompatibility",
    0x187: "Schemas.DeleteSchemaVersion",
    0x188: "Schemas.DeleteSubject",
    0x1A0: "Transactions.InitProducer",
    0x1A1: "Transactions.HeartbeatProducer",
    0x1A2: "Transactions.BeginTransaction",
    0x1A3: "Transactions.AddAcks",
    0x1A4: "Transactions.AddOffsets",
    0x1A5: "Transactions.PrepareTransaction",
    0x1A6: "Transactions.CommitTransaction",
    0x1A7: "Transactions.AbortTransaction",
    0x1A8: "Transactions.CommitMany",
    0x1A9: "Transactions.FindCommitted",
    0x1AA: "Transactions.ListTransactions",
    0x1AB: "Transactions.DescribeTransaction",
    0x1AC: "Transactions.TransactionStats",
}
"""Calls with one answer. Request and answer are the protobuf messages of the gRPC method of that name, as payload."""
