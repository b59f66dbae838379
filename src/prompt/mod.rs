//! From messages and media items to token ids, rows and positions.

mod assemble;
mod expand;
mod framing;
pub mod message;
mod place;
mod positions;
pub mod template;
pub mod user_text;

pub use self::assemble::{Item, Prompt, PromptMaker, Request, Span, with_indices};
pub use self::framing::{framing, literal_tokens};
pub use self::message::{Content, Conversation, Message};
pub use self::place::place_media;
pub use self::positions::{Positions, positions};
