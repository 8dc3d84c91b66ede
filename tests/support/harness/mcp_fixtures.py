"""What the official conformance suite wants to find at a server: tools, resources and prompts of its own making.

They stand behind our own HTTP stack, in the place of the real ones: what is judged is everything around them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    AudioContent,
    BlobResourceContents,
    CallToolRequestParams,
    CallToolResult,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    EmbeddedResource,
    EmptyResult,
    GetPromptRequestParams,
    GetPromptResult,
    ImageContent,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListRootsRequest,
    ListToolsResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    SamplingMessage,
    SetLevelRequestParams,
    SubscribeRequestParams,
    TextContent,
    TextResourceContents,
    Tool,
    UnsubscribeRequestParams,
)
from typing_extensions import override

from latent_gateway.mcp.server import Surface

Context = ServerRequestContext[Any, Any]
Result = CallToolResult | InputRequiredResult
NAME: Final = "latent-conformance"
PNG: Final = (  # one red pixel
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)
WAV: Final = base64.b64encode(
    b"RIFF\x26\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x80\x3e\x00\x00"
    b"\x02\x00\x10\x00data\x02\x00\x00\x00\x00\x00"
).decode()


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool."""

    ctx: Context
    params: CallToolRequestParams

    @property
    def arguments(self) -> Mapping[str, Any]:
        return self.params.arguments or {}

    @property
    def given(self) -> Mapping[str, Any]:
        """What the client answered to an earlier round."""
        return self.params.input_responses or {}

    @property
    def state(self) -> str | None:
        return self.params.request_state


Handler = Callable[[Call], Awaitable[Result]]
_TOOLS: dict[str, tuple[Tool, Handler]] = {}


def tool(about: str, **properties: Any) -> Callable[[Handler], Handler]:
    """Offer the function as the tool of its name."""

    def offered(handler: Handler) -> Handler:
        name = getattr(handler, "__name__")  # noqa: B009 - a Callable has no name for the checker
        schema = {"type": "object", "properties": properties, "required": sorted(properties)}
        _TOOLS[name] = (Tool(name=name, description=about, input_schema=schema), handler)
        return handler

    return offered


def text(body_text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=body_text)])


def embedded(uri: str, mime: str, body_text: str) -> EmbeddedResource:
    contents = TextResourceContents(uri=uri, mime_type=mime, text=body_text)
    return EmbeddedResource(type="resource", resource=contents)


def image() -> ImageContent:
    return ImageContent(type="image", data=PNG, mime_type="image/png")


@tool("Answers with a text")
async def test_simple_text(call: Call) -> Result:
    return text("This is a simple text response for testing.")


@tool("Answers with an image")
async def test_image_content(call: Call) -> Result:
    return CallToolResult(content=[image()])


@tool("Answers with a sound")
async def test_audio_content(call: Call) -> Result:
    return CallToolResult(content=[AudioContent(type="audio", data=WAV, mime_type="audio/wav")])


@tool("Answers with a resource")
async def test_embedded_resource(call: Call) -> Result:
    body_text = "This is an embedded resource content."
    return CallToolResult(content=[embedded("test://embedded-resource", "text/plain", body_text)])


@tool("Answers with a text, an image and a resource")
async def test_multiple_content_types(call: Call) -> Result:
    data = json.dumps({"test": "data", "value": 123})
    return CallToolResult(
        content=[
            TextContent(type="text", text="Multiple content types test:"),
            image(),
            embedded("test://mixed-content-resource", "application/json", data),
        ]
    )


@tool("Tells three lines of log while it works")
async def test_tool_with_logging(call: Call) -> Result:
    for body_text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await log(call.ctx, body_text)
    return text("Three lines were told.")


@tool("Tells its progress while it works")
async def test_tool_with_progress(call: Call) -> Result:
    for done in (0, 50, 100):
        await call.ctx.session.report_progress(done, 100, f"Completed step {done} of 100")
    return text("Progress was told.")


@tool("Always fails")
async def test_error_handling(call: Call) -> Result:
    failed = text("This tool intentionally returns an error for testing")
    return failed.model_copy(update={"is_error": True})


async def log(ctx: Context, body_text: str) -> None:
    await ctx.session.send_log_message("info", body_text, related_request_id=ctx.request_id)


def ask(message: str, **properties: Any) -> ElicitRequest:
    schema = {"type": "object", "properties": properties, "required": sorted(properties)}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def sample(prompt: str, max_tokens: int = 100) -> CreateMessageRequest:
    message = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
    return CreateMessageRequest(
        params=CreateMessageRequestParams(messages=[message], max_tokens=max_tokens)
    )


def required(state: str | None = None, **requests: Any) -> InputRequiredResult:
    return InputRequiredResult(input_requests=requests, request_state=state)


STRING: Final = {"type": "string"}
ELICITATION_NAME: Final = ask("What is your name?", name=STRING)


@tool("Asks for a name")
async def test_input_required_result_elicitation(call: Call) -> Result:
    if "user_name" not in call.given:
        return required(user_name=ELICITATION_NAME)
    return text(f"Hello, {call.given['user_name'].content['name']}!")


@tool("Asks the client's model")
async def test_input_required_result_sampling(call: Call) -> Result:
    if "capital_question" not in call.given:
        return required(capital_question=sample("What is the capital of France?"))
    return text(f"The model says: {call.given['capital_question'].content}")


@tool("Asks for the client's roots")
async def test_input_required_result_list_roots(call: Call) -> Result:
    if "client_roots" not in call.given:
        return required(client_roots=ListRootsRequest())
    return text(f"Roots: {[str(root.uri) for root in call.given['client_roots'].roots]}")


@tool("Asks, and recognises its own state")
async def test_input_required_result_request_state(call: Call) -> Result:
    if "confirm" not in call.given:
        return required("confirming", confirm=ask("Please confirm", ok={"type": "boolean"}))
    return text("state-ok" if call.state == "confirming" else "state-unknown")


@tool("Asks for three things at once")
async def test_input_required_result_multiple_inputs(call: Call) -> Result:
    if not {"user_name", "greeting", "client_roots"} <= set(call.given):
        greeting = sample("Generate a greeting", 50)
        return required(
            "three", user_name=ELICITATION_NAME, greeting=greeting, client_roots=ListRootsRequest()
        )
    return text("All three were given.")


@tool("Asks twice, one after the other")
async def test_input_required_result_multi_round(call: Call) -> Result:
    if call.state == "second" and "step2" in call.given:
        return text(f"Your colour is {call.given['step2'].content['color']}.")
    if call.state == "first" and "step1" in call.given:
        return required("second", step2=ask("Step 2: What is your favorite color?", color=STRING))
    return required("first", step1=ask("Step 1: What is your name?", name=STRING))


@tool("Asks, with a state that nobody may change")
async def test_input_required_result_tampered_state(call: Call) -> Result:
    if call.state != "sealed":
        return required("sealed", confirm=ask("Please confirm", ok={"type": "boolean"}))
    return text("The state came back as it was.")


@tool("Asks for what the client says it can give")
async def test_input_required_result_capabilities(call: Call) -> Result:
    able = call.ctx.session.client_capabilities
    if able is not None and able.elicitation is not None:
        return required(user_name=ELICITATION_NAME)
    return required(greeting=sample("Generate a greeting", 50))


@tool("Needs a model of the client's")
async def test_missing_capability(call: Call) -> Result:
    able = call.ctx.session.client_capabilities
    if able is None or able.sampling is None:
        data: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "this needs sampling", data)
    return text("The client has a model.")


@tool("Asks, on a stream")
async def test_streaming_elicitation(call: Call) -> Result:
    return await test_input_required_result_elicitation(call)


@tool("Logs, if the client wants to hear it")
async def test_logging_tool(call: Call) -> Result:
    return await test_tool_with_logging(call)


@tool("Takes an argument that stands in a header too")
async def test_custom_header(call: Call) -> Result:
    return text(f"The header said {call.arguments['value']}.")


@tool("Has a schema with everything that JSON Schema 2020-12 knows")
async def json_schema_2020_12_tool(call: Call) -> Result:
    return text("The arguments fit.")


def _adjust(name: str, **schema: Any) -> None:
    offered, handler = _TOOLS[name]
    _TOOLS[name] = (offered.model_copy(update={"input_schema": schema}), handler)


_adjust(
    "test_custom_header",
    type="object",
    properties={"value": {"type": "string", "x-mcp-header": "Value"}},
    required=["value"],
)
_adjust(
    "json_schema_2020_12_tool",
    **{"$schema": "https://json-schema.org/draft/2020-12/schema"},
    type="object",
    **{
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": STRING, "city": STRING},
            }
        }
    },
    properties={
        "name": STRING,
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": STRING,
        "email": STRING,
    },
    allOf=[{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    **{
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
    },
    additionalProperties=False,
)


RESOURCES: Final = {
    "test://static-text": TextResourceContents(
        uri="test://static-text",
        mime_type="text/plain",
        text="This is the content of the static text resource.",
    ),
    "test://static-binary": BlobResourceContents(
        uri="test://static-binary", mime_type="image/png", blob=PNG
    ),
    "test://watched-resource": TextResourceContents(
        uri="test://watched-resource", mime_type="text/plain", text="Watched resource content"
    ),
}
TEMPLATE: Final = "test://template/{id}/data"

PROMPTS: Final = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    "test_input_required_result_prompt": (),
}


class Fixtures(Surface):
    """Our surface with the suite's tools in the place of ours."""

    @override
    def _server(self) -> Server[Any]:
        hint = CacheHint(ttl_ms=60_000, scope="private")
        server: Server[Any] = Server(
            NAME,
            version="1.0.0",
            cache_hints={"tools/list": hint, "prompts/list": hint, "resources/list": hint},
            get_tool_input_schema=schema_of,
            on_list_tools=list_tools,
            on_call_tool=call_tool,
            on_list_resources=list_resources,
            on_list_resource_templates=list_templates,
            on_read_resource=read_resource,
            on_subscribe_resource=subscribe,
            on_unsubscribe_resource=unsubscribe,
            on_list_prompts=list_prompts,
            on_get_prompt=get_prompt,
            on_completion=complete,
            on_set_logging_level=set_level,
        )
        security = RequestStateSecurity.ephemeral()
        server.middleware.append(RequestStateBoundary(security, default_audience=NAME))
        return server


def schema_of(name: str) -> Mapping[str, Any] | None:
    return _TOOLS[name][0].input_schema if name in _TOOLS else None


async def list_tools(_: Context, __: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(tools=[offered for offered, _ in _TOOLS.values()])


async def call_tool(ctx: Context, params: CallToolRequestParams) -> Result:
    if params.name not in _TOOLS:
        raise MCPError(INVALID_PARAMS, f"there is no tool {params.name}")
    return await _TOOLS[params.name][1](Call(ctx, params))


async def list_resources(_: Context, __: PaginatedRequestParams | None) -> ListResourcesResult:
    return ListResourcesResult(
        resources=[
            Resource(uri=uri, name=uri, description="For the suite", mime_type=held.mime_type)
            for uri, held in RESOURCES.items()
        ]
    )


async def list_templates(
    _: Context, __: PaginatedRequestParams | None
) -> ListResourceTemplatesResult:
    template = ResourceTemplate(
        uri_template=TEMPLATE,
        name="template",
        description="For the suite",
        mime_type="application/json",
    )
    return ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(_: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
    uri = str(params.uri)
    before, after = TEMPLATE.split("{id}")
    if uri in RESOURCES:
        return ReadResourceResult(contents=[RESOURCES[uri]])
    if uri.startswith(before) and uri.endswith(after):
        found = uri.removeprefix(before).removesuffix(after)
        data = {"id": found, "templateTest": True, "data": f"Data for ID: {found}"}
        held = TextResourceContents(uri=uri, mime_type="application/json", text=json.dumps(data))
        return ReadResourceResult(contents=[held])
    raise MCPError(INVALID_PARAMS, "there is no such resource", {"uri": uri})


async def subscribe(_: Context, __: SubscribeRequestParams) -> EmptyResult:
    return EmptyResult()


async def unsubscribe(_: Context, __: UnsubscribeRequestParams) -> EmptyResult:
    return EmptyResult()


async def set_level(_: Context, __: SetLevelRequestParams) -> EmptyResult:
    return EmptyResult()


async def list_prompts(_: Context, __: PaginatedRequestParams | None) -> ListPromptsResult:
    return ListPromptsResult(
        prompts=[
            Prompt(
                name=name,
                description="For the suite",
                arguments=[
                    PromptArgument(name=n, description="For the suite", required=True)
                    for n in names
                ],
            )
            for name, names in PROMPTS.items()
        ]
    )


async def get_prompt(
    _: Context, params: GetPromptRequestParams
) -> GetPromptResult | InputRequiredResult:
    given = params.arguments or {}
    match params.name:
        case "test_simple_prompt":
            return body_text("This is a simple prompt for testing.")
        case "test_prompt_with_arguments":
            return body_text(
                f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'"
            )
        case "test_prompt_with_embedded_resource":
            held = "Embedded resource content for testing."
            return body_text(
                embedded(given["resourceUri"], "text/plain", held),
                "Please process the embedded resource above.",
            )
        case "test_prompt_with_image":
            return body_text(image(), "Please analyze the image above.")
        case "test_input_required_result_prompt":
            answers = params.input_responses or {}
            if "user_context" not in answers:
                return required(
                    user_context=ask("What context should the prompt use?", context=STRING)
                )
            return body_text(f"Context: {answers['user_context']}")
    raise MCPError(INVALID_PARAMS, f"there is no prompt {params.name}")


def body_text(*parts: str | ImageContent | EmbeddedResource) -> GetPromptResult:
    return GetPromptResult(
        messages=[
            PromptMessage(
                role="user",
                content=TextContent(type="text", text=part) if isinstance(part, str) else part,
            )
            for part in parts
        ]
    )


async def complete(_: Context, params: CompleteRequestParams) -> CompleteResult:
    values = [v for v in ("alpha", "beta") if v.startswith(params.argument.value)]
    return CompleteResult(completion=Completion(values=values, total=len(values), has_more=False))
