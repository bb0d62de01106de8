// What the wheel and the fingers do, for who has neither.

interface ButtonsProps {
  onIn: () => void;
  onOut: () => void;
  onHome: () => void;
  /** Null while no node is chosen. */
  onCloser: (() => void) | null;
}

export function MapButtons({ onIn, onOut, onHome, onCloser }: ButtonsProps) {
  const buttons: [string, string, (() => void) | null][] = [
    ["Zoom in", "M8 3v10M3 8h10", onIn],
    ["Zoom out", "M3 8h10", onOut],
    ["Show all", "M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10", onHome],
    ["Show the chosen node and its neighbours", "M8 12.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9ZM8 1v3M8 12v3M1 8h3M12 8h3", onCloser],
  ];
  return (
    <div class="map-buttons" role="group" aria-label="View of the map">
      {buttons.map(
        ([name, path, act]) =>
          act && (
            <button key={name} type="button" class="icon-button" aria-label={name} title={name} onClick={act}>
              <svg class="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
                <path d={path} />
              </svg>
            </button>
          ),
      )}
    </div>
  );
}
