"""Options of the sinks of files."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, model_validator

from actions.sinks.files.layout import check_path, zone_of
from conf.base import Model, Reload, setting
from conf.secrets import Secret, check_no_user

WHOLE_SECONDS_MAX = 60


def _check_zone(name: str) -> str:
    zone_of(name)
    return name


Path = Annotated[str, AfterValidator(check_path)]
Zone = Annotated[str, AfterValidator(_check_zone)]


class _Files(Model):
    """What all sinks of files take."""

    content: Literal["message", "body"] = setting(
        "message",
        "What a line of `json` holds: the `message` with its key, tag, offset, times, properties and body, or the "
        "`body` alone, which is JSON then.",
        reload=Reload.GENERATION,
    )
    rotate_seconds: int | None = setting(
        None,
        "Seconds after which a file is closed and gets its name; at most 60 for those that are written whole (Parquet, "
        "and all in object stores).",
        reload=Reload.GENERATION,
        absent="60 for files that are written whole, 600 for others",
        ge=1,
        le=86_400,
    )
    rotate_bytes: int = setting(
        64 * 1024 * 1024,
        "Bytes from which on a file is closed; those of files that are written whole are in memory until then.",
        reload=Reload.GENERATION,
        ge=1_024,
        le=1 << 40,
    )
    rotate_messages: int | None = setting(
        None,
        "Messages from which on a file is closed. One that is written whole cannot have more than `concurrency`, for "
        "these messages are answered when it is closed: raise both.",
        reload=Reload.GENERATION,
        absent="1000 for files that are written whole, no limit for others",
        ge=1,
    )
    idle_seconds: int = setting(
        5,
        "Seconds without a message after which a file that is written whole is closed.",
        reload=Reload.GENERATION,
        ge=1,
        le=60,
    )
    max_file_count: int = setting(
        128,
        "Open files at most; beyond it the one used longest ago is closed.",
        reload=Reload.GENERATION,
        ge=1,
        le=10_000,
    )
    time_zone: Zone = setting("UTC", "Time zone of the times in paths.", reload=Reload.GENERATION)


class FileOptions(_Files):
    """`options: {File: {...}}`."""

    url: str = setting(
        ...,
        "Root folder: an absolute path of the node's machine, or a URL that pyarrow reaches, such as "
        "`s3://bucket/folder` or `gs://bucket/folder`.",
        reload=Reload.GENERATION,
        min_length=1,
    )
    path: Path = setting(
        "${topic}/${yyyy}-${MM}-${dd}",
        "Folders below it: `${group}`, `${topic}`, and of the message's store time `${yyyy} ${MM} ${dd} ${HH} ${mm}`.",
        reload=Reload.GENERATION,
    )
    format: Literal["json", "text", "parquet"] = setting(
        "json", "Form: JSON lines, a body per line, or Parquet.", reload=Reload.GENERATION
    )
    flush_ms: int = setting(
        100,
        "Milliseconds for which messages are gathered before they are written, synced and answered.",
        reload=Reload.GENERATION,
        ge=1,
        le=60_000,
    )
    endpoint: str | None = setting(None, "S3: another server than Amazon's.", reload=Reload.GENERATION)
    region: str | None = setting(None, "S3: region.", reload=Reload.GENERATION)
    access_key: str | None = setting(
        None, "S3: access key.", reload=Reload.GENERATION, absent="as the environment says"
    )
    secret_key: Secret | None = setting(
        None, "S3: secret key, `{file: PATH}` or `{env: NAME}`.", reload=Reload.GENERATION
    )

    @property
    def is_local(self) -> bool:
        """Whether files lie on the node's machine."""
        return self.url.startswith(("/", "file:///"))

    @property
    def is_whole(self) -> bool:
        """Whether files are written whole."""
        return self.format == "parquet" or not self.is_local

    @model_validator(mode="after")
    def _check(self) -> FileOptions:
        check_no_user(self.url)
        if self.endpoint is not None:
            check_no_user(self.endpoint)
        if not self.is_local and "://" not in self.url:
            raise ValueError(f"url {self.url!r} is neither an absolute path nor a URL such as s3://bucket/folder")
        if not self.is_local and self.url.startswith(("http:", "https:", "webhdfs:", "hdfs:")):
            raise ValueError("url is of HDFS or the web: HDFS is written by the action Hdfs, the web by AsyncHttp")
        s3 = {
            "endpoint": self.endpoint,
            "region": self.region,
            "accessKey": self.access_key,
            "secretKey": self.secret_key,
        }
        if not self.url.startswith("s3://") and (given := [name for name, value in s3.items() if value is not None]):
            raise ValueError(f"{given[0]} is for s3:// alone; remove it")
        if (self.access_key is None) != (self.secret_key is None):
            raise ValueError("accessKey and secretKey belong together")
        _check_rotation(self, is_whole=self.is_whole)
        return self


class HdfsOptions(_Files):
    """`options: {Hdfs: {...}}`; fields of DDMQ's `hdfsConfiguration` keep their names (R64, R65)."""

    urls: list[Annotated[str, AfterValidator(check_no_user)]] = setting(
        ...,
        "Name nodes' WebHDFS, such as `http://namenode:9870`; with several the active one is found.",
        reload=Reload.GENERATION,
        min_length=1,
        max_length=16,
    )
    root_path: str = setting(..., "Root folder, absolute.", reload=Reload.GENERATION, pattern=r"^/")
    file_path: Path = setting(
        "${topic}/${yyyy}-${MM}-${dd}/${HH}",
        "Folders below it: `${group}`, `${topic}`, and of the message's store time `${yyyy} ${MM} ${dd} ${HH} ${mm}`.",
        reload=Reload.GENERATION,
    )
    user_name: str = setting(..., "HDFS user whose files they are.", reload=Reload.GENERATION, min_length=1)
    file_type: Literal["text", "sequence", "json", "parquet"] = setting(
        "text",
        "Form: a body per line, SequenceFile (Text, BytesWritable), JSON lines, or Parquet.",
        reload=Reload.GENERATION,
    )
    token: Secret | None = setting(None, "Delegation token, `{file: PATH}` or `{env: NAME}`.", reload=Reload.GENERATION)
    ca_file: str | None = setting(
        None, "PEM file of the authorities that https servers are checked by.", reload=Reload.GENERATION
    )
    timeout: int = setting(30_000, "Milliseconds for a call.", reload=Reload.GENERATION, ge=1, le=600_000)
    flush_ms: int = setting(
        1_000,
        "Milliseconds for which messages are gathered before they are written and answered.",
        reload=Reload.GENERATION,
        ge=1,
        le=60_000,
    )

    @property
    def is_whole(self) -> bool:
        """Whether files are written whole."""
        return self.file_type == "parquet"

    @model_validator(mode="before")
    @classmethod
    def _from_ddmq(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        value = dict(value)
        if value.get("fileType") in ("SequenceFile", "Text"):
            value["fileType"] = {"SequenceFile": "sequence", "Text": "text"}[value["fileType"]]
        for name in ("reExpDatabase", "reExpTable"):
            if value.get(name) == "":
                del value[name]
            elif name in value:
                raise ValueError(f"{name} was never used by DDMQ either; remove it")
        if "password" in value:
            raise ValueError(
                "WebHDFS has no password, and DDMQ never used it; remove it, or write `token: {file: PATH}`"
            )
        return value

    @model_validator(mode="after")
    def _check(self) -> HdfsOptions:
        for url in self.urls:
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"{url!r} is not a valid address of WebHDFS; write one such as http://namenode:9870")
        _check_rotation(self, is_whole=self.is_whole)
        return self


def _check_rotation(options: _Files, *, is_whole: bool) -> None:
    if is_whole and options.rotate_seconds is not None and options.rotate_seconds > WHOLE_SECONDS_MAX:
        raise ValueError(
            f"rotateSeconds is at most {WHOLE_SECONDS_MAX} for files that are written whole: "
            "their messages are answered when they are closed"
        )
