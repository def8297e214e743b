//! Definitions that would make strict clients refuse the whole list they are in.
//!
//! Such clients read a list as one value of the protocol's schema. So what breaks the schema is left
//! out, and the rest of the list stays; little slips whose meaning is plain are put right instead.

mod definitions;
mod schema;
pub mod shape;
mod walk;

use waypost_wire::depth;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use super::DEPTH;
use super::entry::{Kind, Rejected};
use shape::{At, Flaw, Misfit, Shape};
use walk::Walk;

/// A definition that breaks no list.
pub(super) struct Sound {
    pub(super) definition: Raw,
    /// What was wrong with it, and left out.
    pub(super) flaws: Vec<Flaw>,
}

/// The definition, put right where that is needed.
///
/// # Errors
/// [`Rejected`] for one that breaks the schema with what cannot be left out.
pub(super) fn sound(kind: Kind, raw: &Raw) -> Result<Sound, Rejected> {
    depth::check(raw.as_bytes(), DEPTH)?;
    if raw.decode::<Walk>().is_none() {
        return Err(Rejected::Undecoded);
    }
    let mut flaws = Vec::new();
    let known = Shape::Members(definitions::of(kind));
    let mended = match known.fit(raw, &At::Whole, &mut flaws) {
        Ok(mended) => mended.unwrap_or_else(|| raw.clone()),
        Err(Misfit::Flaw(flaw)) => return Err(Rejected::Flaw(flaw)),
        Err(Misfit::Unreadable(why)) => return Err(why.into()),
    };
    let definition = match kind {
        Kind::Tool => tool(mended, &mut flaws)?,
        Kind::Prompt | Kind::Resource | Kind::Template => mended,
    };
    Ok(Sound { definition, flaws })
}

fn tool(definition: Raw, flaws: &mut Vec<Flaw>) -> Result<Raw, Rejected> {
    let object = definition.as_object()?;
    let definition = with_type(definition, &object)?;
    let Some(output) = object.get("outputSchema") else {
        return Ok(definition);
    };
    // Where sessions get another one it has to be found, see the front.
    let is_hidden = !definition.text().contains("\"outputSchema\"");
    let stop = schema::stop(output).or_else(|| is_hidden.then(String::new));
    let Some(stop) = stop else {
        return Ok(definition);
    };
    flaws.push(Flaw::of_schema(format!("outputSchema{stop}")));
    let mut object = definition.as_object()?;
    object.remove("outputSchema");
    Ok(object.into())
}

/// Arguments are an object whatever their schema says.
fn with_type(definition: Raw, object: &Object) -> Result<Raw, Rejected> {
    let Some(schema) = object.get("inputSchema") else {
        return Ok(definition);
    };
    let schema_type = schema.as_object()?.get("type").cloned();
    match schema_type.filter(|said| !said.is_null()) {
        Some(said) if said.as_str().is_some_and(|said| said == "object") => Ok(definition),
        Some(_) => Err(Rejected::Arguments),
        None => {
            let schema = schema.with_member("type", &Raw::string("object"))?;
            Ok(definition.with_member("inputSchema", &schema)?)
        }
    }
}

#[cfg(test)]
mod tests;
