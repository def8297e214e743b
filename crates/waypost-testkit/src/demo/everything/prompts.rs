//! The prompts of *demo-everything*.

use serde_json::{Map, Value, json};

use super::mrtr;
use super::samples::image;
use crate::kit::fail::Fail;
use crate::kit::request::Request;

/// Listed after every other `test_trigger_prompt_change`.
pub(crate) const DYNAMIC: &str = "test_dynamic_prompt";

pub(crate) fn prompts(dynamic: bool) -> Vec<Value> {
    let argument =
        |name: &str, about: &str| json!({ "name": name, "description": about, "required": true });
    let mut prompts = vec![
        json!({ "name": "test_simple_prompt", "description": "A prompt without arguments." }),
        json!({
            "name": "test_prompt_with_arguments",
            "description": "A prompt with two arguments.",
            "arguments": [argument("arg1", "The first."), argument("arg2", "The second.")],
        }),
        json!({
            "name": "test_prompt_with_embedded_resource",
            "description": "A prompt that carries a resource.",
            "arguments": [argument("resourceUri", "The resource's URI.")],
        }),
        json!({ "name": "test_prompt_with_image", "description": "A prompt with an image." }),
        json!({
            "name": "test_input_required_result_prompt",
            "description": "A prompt that asks before it is complete.",
        }),
    ];
    if dynamic {
        prompts.push(json!({ "name": DYNAMIC, "description": "Comes and goes." }));
    }
    prompts
}

pub(crate) fn get(request: &Request, dynamic: bool) -> Result<Value, Fail> {
    let none = Map::new();
    let arguments = match request.params.get("arguments") {
        None => &none,
        Some(Value::Object(arguments)) => arguments,
        Some(_) => return Err(Fail::invalid_params("`arguments` must be an object")),
    };
    let argument = |name: &str| {
        let value = arguments.get(name).and_then(Value::as_str);
        value.ok_or_else(|| Fail::invalid_params(format!("the prompt needs `{name}`")))
    };
    let messages = match request.string("name")? {
        "test_simple_prompt" => vec![text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments" => {
            let (first, second) = (argument("arg1")?, argument("arg2")?);
            vec![text(format!(
                "Prompt with arguments: arg1='{first}', arg2='{second}'"
            ))]
        }
        "test_prompt_with_embedded_resource" => vec![
            user(&json!({
                "type": "resource",
                "resource": {
                    "uri": argument("resourceUri")?,
                    "mimeType": "text/plain",
                    "text": "Embedded resource content for testing.",
                },
            })),
            text("Please process the embedded resource above."),
        ],
        "test_prompt_with_image" => {
            vec![user(&image()), text("Please analyze the image above.")]
        }
        "test_input_required_result_prompt" => {
            let question = "What context should the prompt use?";
            match mrtr::ask_text(request, "user_context", question, "context")? {
                Ok(context) => vec![text(format!("The context is: {context}"))],
                Err(question) => return Ok(question),
            }
        }
        DYNAMIC if dynamic => vec![text("This prompt comes and goes.")],
        other => return Err(Fail::invalid_params(format!("unknown prompt `{other}`"))),
    };
    Ok(json!({ "messages": messages }))
}

fn user(content: &Value) -> Value {
    json!({ "role": "user", "content": content })
}

fn text(text: impl Into<String>) -> Value {
    user(&json!({ "type": "text", "text": text.into() }))
}
